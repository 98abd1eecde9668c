"""The contract, the oracles and one folder per problem class."""
