
// The page has no kernel: this stands in for the model that one would sync, once for each copy on the page.
for (const host of document.querySelectorAll('[data-attn-id="STATIC_ID"]:not([data-attn-ready])')) {
  host.setAttribute("data-attn-ready", "");
  const values = JSON.parse(host.querySelector('script[type="application/json"]').textContent);
  const listeners = new Map();
  const tell = (event, value) => [...(listeners.get(event) ?? [])].forEach((listener) => listener({}, value));
  let changed = false;
  const model = {
    get: (name) => values[name],
    set(name, value) {
      if (values[name] === value) return;
      values[name] = value;
      changed = true;
      tell("change:" + name, value);
    },
    save_changes() {
      if (changed) tell("change");
      changed = false;
    },
    on(events, listener) {
      for (const event of events.split(" ")) listeners.set(event, (listeners.get(event) ?? new Set()).add(listener));
    },
    off(events, listener) {
      for (const event of events?.split(" ") ?? [...listeners.keys()]) {
        if (listener) listeners.get(event)?.delete(listener);
        else listeners.delete(event);
      }
    },
    send() {},
  };
  const place = host.querySelector(".attn-place");
  const picture = place.querySelector(".attn-picture");
  try {
    widget.render({ model, el: place });
    picture.remove();
  } catch (error) {
    place.replaceChildren(picture); // the picture stays where the script cannot
    console.error(error);
  }
}
