# /// script
# dependencies = ["jaxopt==0.8.5"]
#
# [tool.gradgate]
# home = "https://github.com/google/jaxopt"
# framework = "jax"
# seconds = 300
# ///
"""Implicit differentiation, projections and losses of jaxopt 0.8.5 against closed forms."""

import functools

import jax
import jax.numpy as jnp
import jaxopt
from jaxopt import linear_solve, loss, projection

import gradgate
from gradgate import integers, normal, uniform

STEPS = {"maxiter": 60, "tol": 1e-45}
"""Enough steps for 40 digits where a step is a contraction by 0.1."""
SOLVERS = {
    "lu": linear_solve.solve_lu,
    "normal_cg": functools.partial(linear_solve.solve_normal_cg, tol=1e-14),
    "bicgstab": functools.partial(linear_solve.solve_bicgstab, tol=1e-14),
}


def contraction(x, w, b):
    """A linear map that brings points ten times closer. w: (N, N); b: (N,)."""
    return 0.1 * jnp.tanh(w) @ x / len(b) + b


def fixed_point(w, b, solver="lu"):
    """FixedPointIteration, differentiated implicitly."""
    found = jaxopt.FixedPointIteration(contraction, implicit_diff_solve=SOLVERS[solver], **STEPS)
    return found.run(jnp.zeros_like(b), w, b).params


def default_fixed_point(w, b):
    """FixedPointIteration with the solver that it takes by default."""
    return jaxopt.FixedPointIteration(contraction, **STEPS).run(jnp.zeros_like(b), w, b).params


def plain_fixed_point(w, b):
    """The reference for both: Gauss's elimination without pivots."""
    a = jnp.eye(len(b), dtype=b.dtype) - 0.1 * jnp.tanh(w) / len(b)
    rows = [jnp.append(a[i], b[i]) for i in range(len(b))]
    for i in range(len(rows)):
        pivot = rows[i] / rows[i][i]
        rows = [pivot if j == i else row - row[i] * pivot for j, row in enumerate(rows)]
    return jnp.stack([row[-1] for row in rows])


def root(a):
    """The root of sinh(x) = a: Newton's method in a custom_root, which differentiates it implicitly."""

    def solve(_, a):
        def step(_, x):
            return x - (jnp.sinh(x) - a) / jnp.cosh(x)

        return jax.lax.fori_loop(0, 12, step, jnp.sign(a) * jnp.log1p(2 * jnp.abs(a)))

    return jaxopt.implicit_diff.custom_root(lambda x, a: jnp.sinh(x) - a, solve=SOLVERS["lu"])(solve)(None, a)


def boxed(target, scale):
    """ProjectedGradient onto the box from -1 to 1; the objective is a sum of squares."""
    solver = jaxopt.ProjectedGradient(
        lambda x, target, scale: 0.5 * jnp.sum(scale * (x - target) ** 2),
        projection.projection_box,
        stepsize=1.0,
        acceleration=False,
        implicit_diff_solve=SOLVERS["lu"],
        **STEPS,
    )
    box = (-jnp.ones_like(target), jnp.ones_like(target))
    return solver.run(jnp.zeros_like(target), box, target, scale).params


def plain_boxed(target, scale):
    """The reference for `boxed`."""
    return jnp.where(jnp.abs(target) < 1, target, jnp.sign(target)) + 0 * scale


def simplex(x, scale):
    """The projection onto the simplex whose numbers add up to `scale`."""
    return projection.projection_simplex(x, jnp.exp(scale))


def plain_simplex(x, scale):
    """The reference for `simplex`: of all candidates for the threshold, the largest."""
    ordered = -jnp.sort(-x)
    candidates = [(ordered[: k + 1].sum() - jnp.exp(scale)) / (k + 1) for k in range(len(x))]
    return jnp.maximum(x - functools.reduce(jnp.maximum, candidates), 0)


def ball(x, radius):
    """The projection onto the ball of the Euclidean norm."""
    return projection.projection_l2_ball(x, jnp.exp(radius))


def plain_ball(x, radius):
    """The reference for `ball`."""
    norm = jnp.sqrt(jnp.sum(x * x))
    return jnp.where(norm > jnp.exp(radius), x * (jnp.exp(radius) / norm), x)


def logistic(logits, labels, multi=True):
    """The losses of several classes and of two."""
    if multi:
        return jax.vmap(loss.multiclass_logistic_loss)(labels, logits)
    return jax.vmap(loss.binary_logistic_loss)(labels % 2, logits[:, 0])


def plain_logistic(logits, labels, multi=True):
    """The reference for `logistic`."""
    if multi:
        return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
    return jnp.logaddexp(0.0, jnp.where(labels % 2 == 1, -logits[:, 0], logits[:, 0]))


WIDE = ("float64", "float32")
GRADIENTS = ("gradient_exact", "gradient_float64")
ENDS = "NaN > tol is false, so the iteration ends after one step, and numbers that have not converged are returned"
ROUGHLY = "conjugate gradients stop at a relative residual of 1e-5"
IGNORED = "ProjectedGradient ignores implicit_diff_solve; conjugate gradients stop at a relative residual of 1e-5"
LINEAR = {"w": normal("N N"), "b": normal("N")}
fixed = gradgate.Pair(
    fixed_point,
    reference=plain_fixed_point,
    inputs=LINEAR,
    dims={"N": (3, 2)},
    options={"solver": tuple(SOLVERS)},
    dtypes=WIDE,
    composes=("jit", "vmap"),
    name="jaxopt_fixed_point",
    expected={"not_finite": ENDS},
)
fixed_by_default = gradgate.Pair(
    default_fixed_point,
    reference=plain_fixed_point,
    inputs=LINEAR,
    dims={"N": (6, 8)},
    dtypes=("float64",),
    composes=("jit",),
    name="jaxopt_fixed_point_by_default",
    expected={"not_finite": ENDS, **dict.fromkeys(GRADIENTS, ROUGHLY)},
)
custom_root = gradgate.Pair(
    root,
    reference=jnp.arcsinh,
    inputs={"a": normal("N")},
    dims={"N": (3, 1)},
    dtypes=WIDE,
    composes=("jit", "vmap"),
    name="jaxopt_custom_root",
)
projected_gradient = gradgate.Pair(
    boxed,
    reference=plain_boxed,
    inputs={"target": normal("N"), "scale": uniform("N", 0.9, 1.1)},
    dtypes=("float64",),
    dims={"N": (6, 8)},
    composes=("jit",),
    name="jaxopt_projected_gradient",
    expected=dict.fromkeys(GRADIENTS, IGNORED),
)
projection_simplex = gradgate.Pair(
    simplex,
    reference=plain_simplex,
    inputs={"x": normal("N"), "scale": normal("")},
    dims={"N": (4, 1, 7)},
    composes=("jit", "vmap"),
    name="jaxopt_projection_simplex",
)
projection_ball = gradgate.Pair(
    ball,
    reference=plain_ball,
    inputs={"x": normal("N"), "radius": normal("")},
    dims={"N": (4, 1, 7)},
    composes=("jit", "vmap"),
    name="jaxopt_projection_l2_ball",
)
losses = gradgate.Pair(
    logistic,
    reference=plain_logistic,
    inputs={"logits": normal("T V"), "labels": integers("T", below="V")},
    dims={"T": (3, 1), "V": (4, 2)},
    options={"multi": (True, False)},
    composes=("jit", "vmap", "second_order"),
    regimes={"confident": lambda given: given | {"logits": 50 * given["logits"]}},
    name="jaxopt_logistic_losses",
)
