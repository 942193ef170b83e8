// The console works without this. With it, pages stay up to date by themselves, and a form is sent once.
"use strict";

// follow makes one tree like another, and touches only what differs: focus, selection and scrolling stay.
function follow(now, then) {
  if (now.nodeType !== then.nodeType || now.nodeName !== then.nodeName) {
    now.replaceWith(then.cloneNode(true));
    return;
  }
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.nodeValue !== then.nodeValue) now.nodeValue = then.nodeValue;
    return;
  }
  for (const { name } of [...now.attributes]) if (!then.hasAttribute(name)) now.removeAttribute(name);
  for (const { name, value } of then.attributes) {
    // What somebody types stays.
    if (now.nodeName === "INPUT" && name === "value") continue;
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  const old = [...now.childNodes], next = [...then.childNodes];
  next.forEach((child, i) => (i < old.length ? follow(old[i], child) : now.append(child.cloneNode(true))));
  old.slice(next.length).forEach((child) => child.remove());
}

function showLive(main) {
  const part = document.getElementById("live"), state = document.getElementById("live-state");
  if (!part || !window.EventSource) return;
  const say = (text, on) => {
    state.textContent = text;
    state.classList.toggle("on", on);
  };
  let source, retry;
  const open = () => {
    source = new EventSource(main.dataset.live);
    source.addEventListener("open", () => say("Live", true));
    source.addEventListener("part", (event) => {
      const page = new DOMParser().parseFromString("<div id=live>" + event.data + "</div>", "text/html");
      follow(part, page.getElementById("live"));
      say("Live", true);
    });
    source.addEventListener("signed-out", () => location.reload());
    source.addEventListener("error", () => {
      say("Not live: the api does not answer; trying again", false);
      if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      clearTimeout(retry);
      retry = setTimeout(() => location.reload(), 5000); // signed out, or too many pages: as without a script
    });
  };
  say("Connecting", false);
  open();
  // A page that nobody sees costs the stores nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source.close();
      clearTimeout(retry);
      say("Paused while hidden", false);
    } else if (source.readyState === EventSource.CLOSED) open();
  });
}

const main = document.querySelector("main[data-live]");
if (main) showLive(main);

// The server does what a form asks for once, whatever a browser sends; this only says that it is under way.
document.querySelectorAll("form[data-once]").forEach((form) =>
  form.addEventListener("submit", () =>
    form.querySelectorAll("button[type=submit]").forEach((button) => {
      setTimeout(() => {
        button.disabled = true;
        button.textContent += " …";
      });
    })
  )
);
window.addEventListener("pageshow", (event) => event.persisted && location.reload());
