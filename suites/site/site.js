"use strict";
// What Sphinx leaves to the mouse: a table that scrolls sideways can be reached and named, and captions have a level.
(() => {
  const reach = () => {
    for (const box of document.querySelectorAll(".table-wrapper")) {
      if (box.scrollWidth > box.clientWidth) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", "table, scrolls sideways");
      } else {
        box.removeAttribute("tabindex");
      }
    }
  };
  addEventListener("DOMContentLoaded", () => {
    for (const caption of document.querySelectorAll("p.caption[role='heading']")) caption.setAttribute("aria-level", "2");
    reach();
  });
  addEventListener("resize", reach);
})();
