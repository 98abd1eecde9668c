"use strict";
// What Sphinx leaves to the mouse: a table that scrolls sideways can be reached and named, and captions have a level.
// Options of commands do not wrap at their hyphens. The words of a search are not marked inside of drawings, where Sphinx
// would put a bright box behind them, and stumble over a title.
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
    for (const block of document.querySelectorAll(".highlight pre")) {
      block.innerHTML = block.innerHTML.replace(/(^|[\s>])(--[a-z][\w-]*)/g, '$1<span class="whole">$2</span>');
    }
    for (const words of document.querySelectorAll("svg text, svg title")) words.classList.add("nohighlight");
    reach();
  });
  addEventListener("resize", reach);
})();
