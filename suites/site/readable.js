// What a reader cannot see or reach on this page, a sentence each: text of too little contrast (WCAG AA), an area that
// scrolls sideways and that the keyboard does not reach, and a focus of the keyboard that nothing shows.
(() => {
  const told = new Set();
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (colour) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = (colour) => {
    const linear = (value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2]);
  };
  const page = document.body.appendChild(document.createElement("i"));
  page.style.backgroundColor = "Canvas";
  const paper = parts(getComputedStyle(page).backgroundColor);
  page.remove();
  const upwards = (element) => (element ? [element, ...upwards(element.parentElement)] : []);
  // The colour behind an element; null if it is a picture.
  const ground = (element) => {
    const behind = [];
    for (const style of upwards(element).map((one) => getComputedStyle(one))) {
      if (style.backgroundImage !== "none") return null;
      behind.unshift(parts(style.backgroundColor));
    }
    return behind.reduce((below, top) => over(top, below), paper);
  };
  const seen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const compare = (element, words, colour, below) => {
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const shown = parts(colour);
    for (const one of upwards(element)) shown[3] *= getComputedStyle(one).opacity;
    const [dark, bright] = [luminance(over(shown, below)), luminance(below)].sort((a, b) => a - b);
    const ratio = (bright + 0.05) / (dark + 0.05), needed = large ? 3 : 4.5;
    if (ratio < needed - 0.005) {
      told.add(`contrast ${ratio.toFixed(1)} in place of ${needed}: ${colour} on ${below.slice(0, 3).map(Math.round)}`);
    }
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, words = texts.currentNode.data.trim();
    if (!words || !seen(element) || element.closest("script, style, noscript")) continue;
    const drawing = element.closest("svg"), below = ground(drawing ? drawing.parentElement : element);
    if (below) compare(element, words, getComputedStyle(element)[drawing ? "fill" : "color"], below);
  }
  const name = (element) => [element.tagName.toLowerCase(), ...element.classList].join(".");
  for (const box of document.querySelectorAll("body *")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(box).overflowX) && box.scrollWidth > box.clientWidth + 1;
    if (scrolls && seen(box) && box.tabIndex < 0 && !box.querySelector("a[href], button, input, summary")) {
      told.add(`${name(box)} scrolls sideways, and the keyboard does not reach it`);
    }
  }
  for (const place of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")) {
    if (place.tabIndex < 0 || place.disabled || !seen(place)) continue;
    place.focus({ focusVisible: true, preventScroll: true });
    const style = getComputedStyle(place), outlined = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
    if (document.activeElement === place && !outlined && style.boxShadow === "none") {
      told.add(`nothing shows that the keyboard is at ${name(place)}`);
    }
  }
  document.activeElement.blur();
  return [...told];
})()
