// What scrolls sideways can be reached and moved by keyboard.
(() => {
  const reach = () => {
    for (const box of document.querySelectorAll("pre, .formula, .table-wrapper, .plot, .output")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);
})();
