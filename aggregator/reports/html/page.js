// The report's chart and the table's search and order. Everything that is text goes in by textContent or canvas text.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const MANY_ROWS = 64, MOST_ARROWS = 48, ROW_PX = 18, MOST_PX = 620, TOP = 34, BOTTOM = 64;

  // ---- table -------------------------------------------------------------------------------------------------
  const body = $("ranks-body");
  const rows = body ? [...body.rows] : [];
  const rowOf = new Map(rows.map((row) => [Number(row.dataset.rank), row]));

  function filterTable() {
    const words = $("ranks-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = $("ranks-state").value;
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = (!state || row.dataset.state === state) && words.every((word) => text.includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    $("ranks-count").textContent = `${shown} of ${rows.length} shown`;
  }

  function orderTable(button) {
    const head = button.closest("th");
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
    const compare = (a, b) => {
      const [left, right] = [key(a), key(b)];
      if (left === "" || right === "") return (left === "") - (right === "") || 0;
      const numbers = Number(left) - Number(right);
      return (Number.isNaN(numbers) ? left.localeCompare(right) : numbers) * (down ? -1 : 1);
    };
    body.append(...rows.sort(compare));
  }

  if (body) {
    $("ranks-tools").hidden = false;
    $("ranks-search").addEventListener("input", filterTable);
    $("ranks-state").addEventListener("change", filterTable);
    for (const button of document.querySelectorAll("th button")) {
      button.disabled = false;
      button.addEventListener("click", () => orderTable(button));
    }
    filterTable();
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));

  // ---- what is drawn -----------------------------------------------------------------------------------------
  const { lanes, bars, marks, first } = data;
  const place = $("chart");
  if (!place) return; // the page says why
  const [EARLIEST, LATEST] = data.range;
  const laneOf = new Map(lanes.rank.map((rank, lane) => [rank, lane]));
  const blamed = new Set(first.ranks.map((rank) => laneOf.get(rank)).filter((lane) => lane !== undefined));
  const ranksOf = new Map(); // host -> lanes
  lanes.host.forEach((host, lane) => ranksOf.set(host, [...(ranksOf.get(host) ?? []), lane]));
  const open = new Set();
  const view = { mode: lanes.rank.length > MANY_ROWS ? "nodes" : "ranks", selected: null, rows: [], place: new Map() };
  const SIGN = first.settled ? "\u25c6 " : "\u25c7 ";
  const hostName = (host) => (host < 0 ? "unknown host" : data.hosts[host]);

  /** Rows from top to bottom: one a rank, or one a node where each of its ranks gets a share of the height. */
  function arrange() {
    const list = [];
    if (view.mode === "ranks") lanes.rank.forEach((_, lane) => list.push({ lanes: [lane] }));
    else {
      const near = new Set();
      for (const lane of blamed) [lane - 1, lane, lane + 1].forEach((n) => near.add(n));
      for (const [host, all] of ranksOf) {
        list.push({ lanes: all, host });
        for (const lane of all) if (open.has(host) || near.has(lane)) list.push({ lanes: [lane], host: null });
      }
    }
    view.rows = list;
    view.place = new Map();
    list.forEach((row, y) => {
      row.name = row.host === undefined || row.host === null
        ? `${blamed.has(row.lanes[0]) ? SIGN : ""}rank ${lanes.rank[row.lanes[0]]}${view.mode === "ranks" ? ` \u00b7 ${hostName(lanes.host[row.lanes[0]])}` : ""}`
        : `${open.has(row.host) ? "\u25be" : "\u25b8"} ${hostName(row.host)}`;
      row.lanes.forEach((lane, n) => {
        const at = { y, from: n / row.lanes.length, share: 1 / row.lanes.length };
        view.place.set(lane, [...(view.place.get(lane) ?? []), at]);
      });
    });
  }

  const palette = () => ({
    doing: data.doing.map((word) => style(`--doing-${word}`)),
    what: data.what.map((word) => style(`--what-${word.replace(/ /g, "-")}`)),
    text: style("--text"), soft: style("--soft"), line: style("--line"), back: style("--card"), pick: style("--pick"),
  });

  const iso = (ms) => new Date(data.t0 + ms).toISOString();
  const isSameTo = (length) => iso(0).slice(0, length) === iso(data.span).slice(0, length);
  const SAME_DAY = isSameTo(10), SAME_YEAR = isSameTo(4);
  /** A moment, with as much of its date as tells moments of this job apart. */
  function clock(ms) {
    const text = iso(ms);
    const date = SAME_DAY ? "" : `${text.slice(SAME_YEAR ? 5 : 0, 10)} `;
    return `${date}${text.slice(11, data.span < 120000 || ms % 1000 ? 23 : 19)}Z`;
  }
  function relative(ms) {
    const from = first.time === null ? 0 : first.time;
    const s = (ms - from) / 1000;
    const size = Math.abs(s) >= 600 ? `${(s / 60).toFixed(1)} min` : `${s.toFixed(Math.abs(s) < 10 ? 2 : 0)} s`;
    return (s > 0 ? "+" : "") + size;
  }

  function barItems(colors) {
    const items = [];
    for (let n = 0; n < bars.lane.length; n++) {
      for (const at of view.place.get(bars.lane[n]) ?? [])
        items.push([at.y, bars.start[n], bars.end[n], bars.doing[n], at.from, at.share, n]);
    }
    return {
      type: "custom", id: "bars", clip: true, animation: false, progressive: 4000, large: true,
      encode: { x: [1, 2], y: 0 }, data: items,
      renderItem(_, api) {
        const [x1, y] = api.coord([api.value(1), api.value(0)]);
        const x2 = api.coord([api.value(2), api.value(0)])[0];
        const height = api.size([0, 1])[1];
        const share = api.value(5) * height;
        const gap = share > 6 ? share * 0.14 : 0;
        const shape = {
          x: x1, y: y - height / 2 + api.value(4) * height + gap, width: Math.max(x2 - x1, 1), height: Math.max(share - 2 * gap, 0.6),
        };
        return { type: "rect", shape, style: { fill: colors.doing[api.value(3)] } };
      },
    };
  }

  const SHAPES = {
    "first failure": (x, y, r) => [[x, y - r * 1.7], [x + r * 1.7, y], [x, y + r * 1.7], [x - r * 1.7, y]],
    fault: (x, y, r) => [[x, y - r], [x + r, y + r], [x - r, y + r]],
    stopped: (x, y, r) => [[x - r, y - r], [x + r, y - r], [x + r, y + r], [x - r, y + r]],
    done: (x, y, r) => [[x - r, y - r], [x + r, y - r], [x, y + r]],
  };

  /** How far off a mark may be, in ms, or null where that is not known: the verdict tells it of the first failure. */
  function unsure(n) {
    const lane = marks.lane[n];
    return (data.what[marks.what[n]] === "first failure" && blamed.has(lane) ? first.eps : null) ?? lanes.eps[lane];
  }

  function markItems(colors) {
    const items = [];
    for (let n = 0; n < marks.lane.length; n++) {
      for (const at of view.place.get(marks.lane[n]) ?? [])
        if (at.share === 1 || data.what[marks.what[n]] === "first failure")
          items.push([at.y, marks.time[n], marks.what[n], at.from + at.share / 2, n, unsure(n) ?? -1]);
    }
    items.sort((a, b) => (data.what[a[2]] === "first failure") - (data.what[b[2]] === "first failure")); // on top of the others
    return {
      type: "custom", id: "marks", clip: true, animation: false, z: 5, encode: { x: 1, y: 0 }, data: items,
      renderItem(_, api) {
        const height = api.size([0, 1])[1];
        const [x, middle] = api.coord([api.value(1), api.value(0)]);
        const y = middle - height / 2 + api.value(3) * height;
        const word = data.what[api.value(2)];
        const r = Math.max(2.5, Math.min(5, height / 3));
        const color = colors.what[api.value(2)];
        const drawn = { fill: color, stroke: colors.back, lineWidth: word === "first failure" ? 1.5 : 0.8 };
        const children = [];
        const eps = api.value(5);
        if (eps > 0) {
          const wide = Math.abs(api.coord([api.value(1) + eps, 0])[0] - x);
          if (wide > r) children.push({ type: "line", shape: { x1: x - wide, y1: y, x2: x + wide, y2: y }, style: { stroke: color, lineWidth: 3, opacity: 0.35 } });
        }
        const points = SHAPES[word];
        if (word === "ended") {
          const cross = { stroke: color, lineWidth: 2 };
          children.push({ type: "line", shape: { x1: x - r, y1: y - r, x2: x + r, y2: y + r }, style: cross },
            { type: "line", shape: { x1: x - r, y1: y + r, x2: x + r, y2: y - r }, style: cross });
          return { type: "group", children };
        }
        children.push(points ? { type: "polygon", shape: { points: points(x, y, r) }, style: drawn }
          : { type: "circle", shape: { cx: x, cy: y, r }, style: word === "recovered" ? { ...drawn, fill: colors.back, stroke: color } : drawn });
        return { type: "group", children };
      },
    };
  }

  /** From the first failure, if it is settled, to the first consequence of each rank that is drawn as a row of its own. */
  function arrowItems(colors) {
    const from = [...blamed].map((lane) => ownPlace(lane)).find(Boolean); // one of several is enough
    if (!from || first.time === null || !first.settled) return { type: "custom", id: "arrows", data: [], renderItem: () => null };
    const seen = new Set(blamed);
    const items = [];
    for (let n = 0; n < marks.lane.length && items.length < MOST_ARROWS; n++) {
      const lane = marks.lane[n], word = data.what[marks.what[n]];
      if (seen.has(lane) || !["consequence", "stopped", "ended"].includes(word) || marks.time[n] < first.time) continue;
      const at = ownPlace(lane);
      if (!at || at.share < 1) continue;
      seen.add(lane);
      items.push([first.time, from.y, marks.time[n], at.y]);
    }
    return {
      type: "custom", id: "arrows", clip: true, animation: false, silent: true, z: 4, encode: { x: [0, 2], y: [1, 3] }, data: items,
      renderItem(_, api) {
        const [x1, y1] = api.coord([api.value(0), api.value(1)]);
        const [x2, y2] = api.coord([api.value(2), api.value(3)]);
        const bend = x1 + (x2 - x1) * 0.15;
        const thin = { stroke: colors.text, lineWidth: 1, opacity: 0.4, fill: "none" };
        return { type: "group", children: [
          { type: "bezierCurve", shape: { x1, y1, cpx1: bend, cpy1: y2, cpx2: bend, cpy2: y2, x2, y2 }, style: thin },
          { type: "polyline", shape: { points: [[x2 - 6, y2 - 3], [x2, y2], [x2 - 6, y2 + 3]] }, style: thin },
        ] };
      },
    };
  }
  const ownPlace = (lane) => (view.place.get(lane) ?? []).find((at) => at.share === 1) ?? (view.place.get(lane) ?? [])[0];

  function pickedItem(colors) {
    const at = view.selected === null ? null : ownPlace(view.selected);
    return {
      type: "custom", id: "picked", silent: true, animation: false, z: 1, data: at ? [[at.y]] : [], clip: true,
      renderItem(params, api) {
        const height = api.size([0, 1])[1];
        const y = api.coord([0, api.value(0)])[1];
        const { x, width } = params.coordSys;
        return { type: "rect", shape: { x, y: y - height / 2, width, height }, style: { fill: colors.pick } };
      },
    };
  }

  function stepItems(colors) {
    return {
      type: "custom", id: "steps", xAxisIndex: 1, yAxisIndex: 1, silent: true, animation: false, clip: true,
      encode: { x: 0 }, data: data.steps.map(([time, step]) => [time, step]),
      renderItem(params, api) {
        const [x, y] = api.coord([api.value(0), 0]);
        const { x: left, width } = params.coordSys;
        const store = params.context;
        if (x < left || x > left + width || (store.last !== undefined && x - store.last < 46)) return null;
        store.last = x;
        return { type: "group", children: [
          { type: "line", shape: { x1: x, y1: y + 2, x2: x, y2: y + 10 }, style: { stroke: colors.soft } },
          { type: "text", style: { text: `step ${api.value(1)}`, x, y: y - 10, align: x - left < 24 ? "left" : "center", fill: colors.soft, font: "11px system-ui, sans-serif" } },
        ] };
      },
    };
  }

  function describe(point) {
    if (point.seriesId === "marks") {
      const n = point.data[4];
      const lane = marks.lane[n];
      const eps = unsure(n);
      const isOpen = data.what[marks.what[n]] === "first failure" && !first.settled;
      const word = isOpen ? "may be the first failure" : data.what[marks.what[n]];
      const sure = marks.exact[n] ? (eps === null ? "clock not comparable" : eps > 0 ? `\u00b1${eps} ms` : "") : "time of a line near it";
      return [`rank ${lanes.rank[lane]}: ${word}`, `${clock(marks.time[n])} (${relative(marks.time[n])})`, sure, data.texts[marks.text[n]]]
        .filter(Boolean).join("\n");
    }
    if (point.seriesId === "bars") {
      const n = point.data[6];
      return `rank ${lanes.rank[bars.lane[n]]} \u00b7 ${hostName(lanes.host[bars.lane[n]])}\n${data.doing[bars.doing[n]].replace("_", " ")}: ${clock(bars.start[n])} to ${clock(bars.end[n])}`;
    }
    return "";
  }

  // ---- drawing -----------------------------------------------------------------------------------------------
  const chart = echarts.init(place, null, { renderer: "canvas" });
  const decisive = data.decisive;
  let left = 0; // width of the rows' names

  function draw(keepZoom) {
    arrange();
    const colors = palette();
    const height = Math.min(Math.max(view.rows.length * ROW_PX, 60), MOST_PX);
    const zoom = keepZoom ? zoomNow() : { start: EARLIEST, end: LATEST };
    left = Math.round(Math.min(230, Math.max(96, place.clientWidth * 0.2)));
    const window = rowWindow(height);
    chart.resize({ width: place.clientWidth, height: height + TOP + BOTTOM });
    const axis = { type: "value", min: EARLIEST, max: LATEST, axisLine: { lineStyle: { color: colors.line } } };
    chart.setOption({
      animation: false,
      textStyle: { fontFamily: "system-ui, sans-serif", color: colors.text },
      grid: [{ left, right: 24, top: TOP, height }, { left, right: 24, top: 4, height: TOP - 8 }],
      xAxis: [
        { ...axis, axisLabel: { formatter: clock, color: colors.soft, hideOverlap: true, showMinLabel: false, showMaxLabel: false }, splitLine: { lineStyle: { color: colors.line, opacity: 0.5 } } },
        { ...axis, gridIndex: 1, show: false },
      ],
      yAxis: [
        { type: "category", inverse: true, data: view.rows.map((row) => row.name), axisTick: { show: false },
          axisLine: { lineStyle: { color: colors.line } }, axisLabel: { color: colors.text, width: left - 16, overflow: "truncate", fontSize: 11, lineHeight: 15 } },
        { type: "value", gridIndex: 1, min: -1, max: 1, show: false },
      ],
      dataZoom: [
        { type: "slider", id: "x", xAxisIndex: [0, 1], height: 16, bottom: 8, startValue: zoom.start, endValue: zoom.end, filterMode: "weakFilter", showDetail: false, brushSelect: false },
        { type: "inside", id: "xi", xAxisIndex: [0, 1], filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true },
        ...(view.rows.length * ROW_PX > MOST_PX ? [{ type: "slider", id: "y", yAxisIndex: 0, width: 12, right: 4, startValue: window[0], endValue: window[1], filterMode: "weakFilter", showDetail: false, brushSelect: false }] : []),
      ],
      tooltip: { trigger: "item", renderMode: "richText", formatter: describe, confine: true, backgroundColor: colors.back, borderColor: colors.line,
        textStyle: { color: colors.text, fontSize: 12, width: 420, overflow: "break" } },
      series: [pickedItem(colors), barItems(colors), arrowItems(colors), markItems(colors), stepItems(colors)],
    }, { replaceMerge: ["series", "dataZoom"] });
    place.dataset.rows = view.rows.length;
    for (const button of document.querySelectorAll("[data-mode]")) button.setAttribute("aria-pressed", button.dataset.mode === view.mode);
  }
  /** Which rows are in sight at first: all ranks as a picture, or as many nodes as can be read, around who is picked. */
  function rowWindow(height) {
    if (view.mode === "ranks") return [0, view.rows.length - 1];
    const fit = Math.floor(height / ROW_PX);
    const middle = (ownPlace(view.selected ?? [...blamed][0] ?? 0) ?? { y: 0 }).y;
    const from = Math.max(0, Math.min(middle - Math.floor(fit / 2), view.rows.length - fit));
    return [from, Math.min(from + fit, view.rows.length) - 1];
  }
  function zoomNow() {
    const zoom = (chart.getOption().dataZoom ?? [])[0];
    return zoom ? { start: zoom.startValue, end: zoom.endValue } : { start: EARLIEST, end: LATEST };
  }
  function zoomTo(start, end) {
    const from = Math.max(EARLIEST, start), to = Math.min(LATEST, end);
    if (to > from) chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue: from, endValue: to });
  }

  /** Shows a rank: its row of the chart, its row of the table, and what is known of it in words. */
  function select(rank) {
    const lane = laneOf.get(rank);
    if (lane === undefined) return;
    view.selected = lane;
    for (const row of rows) row.classList.toggle("picked", Number(row.dataset.rank) === rank);
    const panel = $("selected");
    panel.textContent = "";
    const title = document.createElement("strong");
    title.textContent = `rank ${rank} \u00b7 ${hostName(lanes.host[lane])}`;
    panel.append(title);
    const row = rowOf.get(rank);
    const names = row ? [...row.closest("table").tHead.rows[0].cells].map((cell) => cell.textContent.trim()) : [];
    const told = names.map((name, n) => [name, row.cells[n].textContent.trim()]).slice(2).filter(([, text]) => text)
      .map(([name, text]) => `${name}: ${text}`).join(" \u00b7 ");
    panel.append(document.createElement("br"), told || "no row in the table: too many ranks");
    panel.dataset.rank = rank;
    draw(true);
  }

  /** A click anywhere in a row: on the name of a node it opens or closes that node, else it selects the rank there. */
  chart.getZr().on("click", ({ offsetX, offsetY }) => {
    if (offsetY < TOP || offsetX > place.clientWidth - 24) return;
    const axis = { xAxisIndex: 0, yAxisIndex: 0 };
    const y = chart.convertFromPixel(axis, [left + 1, offsetY])[1];
    const row = view.rows[y];
    if (!row || offsetY > chart.getHeight() - BOTTOM) return;
    if (offsetX < left && row.host !== undefined && row.host !== null) {
      if (open.has(row.host)) open.delete(row.host);
      else open.add(row.host);
    }
    const height = Math.abs(chart.convertToPixel(axis, [0, y + 1])[1] - chart.convertToPixel(axis, [0, y])[1]) || ROW_PX;
    const share = (offsetY - chart.convertToPixel(axis, [0, y])[1]) / height + 0.5;
    select(lanes.rank[row.lanes[Math.max(0, Math.min(row.lanes.length - 1, Math.floor(share * row.lanes.length)))]]);
  });

  place.addEventListener("keydown", (event) => {
    const { start, end } = zoomNow();
    const size = end - start;
    const lane = view.selected ?? [...blamed][0] ?? 0;
    const keys = {
      ArrowDown: () => select(lanes.rank[Math.min(lane + 1, lanes.rank.length - 1)]),
      ArrowUp: () => select(lanes.rank[Math.max(lane - 1, 0)]),
      ArrowLeft: () => zoomTo(start - size / 4, end - size / 4),
      ArrowRight: () => zoomTo(start + size / 4, end + size / 4),
      "+": () => zoomTo(start + size / 4, end - size / 4),
      "-": () => zoomTo(start - size / 2, end + size / 2),
      Home: () => zoomTo(EARLIEST, LATEST),
      f: () => zoomTo(...decisive),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const button of document.querySelectorAll("[data-mode]")) {
    button.addEventListener("click", () => { view.mode = button.dataset.mode; draw(true); });
  }
  $("zoom-decisive")?.addEventListener("click", () => zoomTo(...decisive));
  $("zoom-all").addEventListener("click", () => zoomTo(EARLIEST, LATEST));
  body?.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !String(getSelection())) select(Number(row.dataset.rank));
  });
  // Paper is light, and narrower than most windows; a picture does not follow that by itself.
  for (const [event, isPaper] of [["beforeprint", true], ["afterprint", false]])
    addEventListener(event, () => { document.documentElement.classList.toggle("printed", isPaper); draw(true); });
  addEventListener("resize", () => draw(true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));

  $("chart-tools").hidden = false;
  draw(false);
  if (first.ranks.length) select(first.ranks[0]);
  zoomTo(...decisive);
  place.dataset.drawn = "yes";
})();
