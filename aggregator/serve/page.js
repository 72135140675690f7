// Gives a log to the server, and asks for the verdicts of the jobs that are in sight. All text goes in by textContent.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const most = Number(document.currentScript.dataset.most) * 2 ** 20;
  const AGAIN_MS = 30000, AGAIN_SHARE = 10, AT_ONCE = 2;

  // ---- give a log ------------------------------------------------------------------------------------------
  let isBusy = false;

  function say(working, problem = "") {
    $("working").textContent = working;
    $("problem").textContent = problem;
  }

  async function give(data, name, changed) {
    if (isBusy) return;
    if (data.size === 0) return say("", "there is nothing in it");
    if (data.size > most) {
      return say("", `larger than ${most / 2 ** 20} MB (run denpex-agg postmortem on it, which takes any size)`);
    }
    isBusy = true;
    say(`reading ${name || "the text"} …`);
    const query = new URLSearchParams({ name, changed });
    try {
      const answer = await fetch(`upload?${query}`, { method: "POST", body: data });
      const told = await answer.json();
      if (told.report) return location.assign(told.report);
      say("", told.help ? `${told.problem} (${told.help})` : told.problem);
    } catch (error) {
      say("", `no answer: is denpex-agg serve still running? (${error.message})`);
    } finally {
      isBusy = false;
    }
  }

  function giveFiles(files) {
    if (files.length > 1) return say("", "one file at a time: zip the folder of a job that has several");
    if (files.length === 1) give(files[0], files[0].name, String(files[0].lastModified));
  }

  $("judge").addEventListener("click", () => give(new Blob([$("text").value]), "", ""));
  $("file").addEventListener("change", (event) => giveFiles(event.target.files));
  addEventListener("dragover", (event) => {
    event.preventDefault();
    $("give").classList.add("over");
  });
  addEventListener("dragleave", () => $("give").classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    $("give").classList.remove("over");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
    if (entries.some((entry) => entry?.isDirectory)) return say("", "a folder: zip it, and drop that");
    giveFiles(event.dataTransfer.files);
    const text = event.dataTransfer.getData("text/plain");
    if (!event.dataTransfer.files.length && text) $("text").value = text;
  });
  addEventListener("pageshow", () => say(""));

  // ---- jobs ------------------------------------------------------------------------------------------------
  const rows = $("jobs") ? [...$("jobs").rows] : [];
  if (!rows.length) return;
  const inSight = new Set();
  const askAt = new Map(rows.map((row) => [row, 0]));

  $("jobs-tools").hidden = false;
  $("jobs-search").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    $("jobs-count").textContent = `${shown} of ${rows.length} shown`;
  });

  // A page ahead of what is seen: rows that get their verdict grow, and push those below them out of sight.
  const ahead = { rootMargin: "0px 0px 100% 0px" };
  const observer = new IntersectionObserver((seen) => {
    for (const one of seen) inSight[one.isIntersecting ? "add" : "delete"](one.target);
  }, ahead);
  rows.forEach((row) => observer.observe(row));

  async function ask(row) {
    const began = Date.now();
    askAt.set(row, Infinity);
    try {
      const told = await (await fetch(`job/${row.dataset.job}.row`)).json();
      const state = row.querySelector(".state");
      state.textContent = told.outcome;
      state.className = `state ${told.outcome}`;
      row.querySelector(".written").textContent = told.written ? "being written" : "";
      row.querySelector(".verdict").textContent = told.verdict;
      if (told.changed) row.querySelector(".changed").textContent = told.changed;
      if (told.live) askAt.set(row, Date.now() + Math.max(AGAIN_MS, AGAIN_SHARE * (Date.now() - began)));
    } catch {
      askAt.set(row, Date.now() + AGAIN_MS); // gone, or the server has ended
    }
  }

  async function keepAsking() {
    for (;;) {
      const due = document.hidden ? [] : [...inSight].filter((row) => askAt.get(row) <= Date.now());
      // Who waits longest, or jobs that are being written keep the others from ever being asked.
      if (due.length) await ask(due.reduce((first, row) => (askAt.get(row) < askAt.get(first) ? row : first)));
      else await new Promise((wake) => setTimeout(wake, 500));
    }
  }

  // Few at once: whoever opens a report is not to wait for the whole list.
  for (let n = 0; n < AT_ONCE; n++) keepAsking();
})();
