// A widget's model may be larger than its page: then it is a script of its own (website/site_extension.py), which works from
// a disk, too. It is loaded once the page is there and the widget near; until it comes, the widget's picture stands there.
{
  const fail = (host) => {
    const told = document.createElement("p");
    told.role = "alert";
    told.className = "recorded-caption";
    told.textContent = say("This widget stays a picture: its model could not be loaded.");
    host.querySelector(".attn-place").append(told);
  };
  const load = (host) => {
    const script = document.createElement("script");
    document.head.append(Object.assign(script, { src: host.dataset.attnModel, onerror: () => fail(host) }));
  };
  const see = (entries, near) => {
    for (const { target } of entries.filter(({ isIntersecting }) => isIntersecting)) {
      near.unobserve(target);
      load(target);
    }
  };
  const near = new IntersectionObserver(see, { rootMargin: "100%" });
  addEventListener("load", () => {
    document.querySelectorAll('[data-attn-model]:has(> [type="text/plain"])').forEach((host) => near.observe(host));
  });
}
