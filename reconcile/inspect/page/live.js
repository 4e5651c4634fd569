"use strict";
// Replaces the page's main part by what the server sends, until the button is pressed. Without this script the page
// is loaded anew every 5 s.
(() => {
  const main = document.querySelector("main[data-events]");
  const button = document.getElementById("live");
  if (!main || !button || !window.EventSource) return;
  let source;
  const show = (text, on) => {
    button.textContent = text;
    button.setAttribute("aria-pressed", String(on));
  };
  const busy = () => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && main.contains(selection.anchorNode);
  };
  // The element that has the focus is found again by its text: pressing Tab goes on where it was.
  const replace = (html) => {
    const focused = main.contains(document.activeElement) ? document.activeElement.outerHTML : "";
    main.innerHTML = html;
    if (!focused) return;
    for (const e of main.querySelectorAll("a, button")) {
      if (e.outerHTML === focused) { e.focus({preventScroll: true}); return; }
    }
  };
  const start = () => {
    source = new EventSource(main.dataset.events);
    show("Live", true);
    source.onmessage = (e) => { show("Live", true); if (!busy()) replace(JSON.parse(e.data)); };
    source.onerror = () => show(source.readyState === EventSource.CLOSED ? "Ended" : "Reconnecting", false);
  };
  const stop = () => { source.close(); source = undefined; show("Paused", false); };
  button.hidden = false;
  button.addEventListener("click", () => source && source.readyState !== EventSource.CLOSED ? stop() : start());
  window.addEventListener("pagehide", () => source && source.close());
  start();
})();
