// What scrolls sideways can be reached and moved by keyboard.
(() => {
  const reach = () => {
    for (const box of document.querySelectorAll("pre, .formula, .table-wrapper, .plot, .output")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("load", reach);
  addEventListener("load", () => { // the two sides of a page have names, for readers of the screen
    for (const [side, name] of [["sidebar", "All pages"], ["toc", "On this page"]]) {
      document.querySelector(`.${side}-drawer`)?.setAttribute("aria-label", name);
    }
  });
  addEventListener("resize", reach);
})();
