/* Browsers refuse workers to pages that are opened as files. There, the search's worker runs in a
   hidden frame of the page and talks to it by events. Pages from a server are left alone. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      addEventListener("worker-says", (event) =>
        this.dispatchEvent(new MessageEvent("message", { data: event.detail })));
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc =
        "<script>self.postMessage = (detail) =>" +
        " parent.dispatchEvent(new parent.CustomEvent('worker-says', { detail }));</" + "script>" +
        "<script src='" + url + "'></" + "script>";
      this.frame.onload = () => {
        const early = this.waiting;
        this.waiting = null;
        early.forEach((data) => this.postMessage(data));
      };
      document.body.appendChild(this.frame);
    }
    postMessage(data) {
      if (this.waiting) return this.waiting.push(data);
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
  };
}
