type Labels = Readonly<Record<string, string>>;

interface Sample {
  labels: Labels;
  value: number;
}

const line = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const label = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** The metrics of the service at one time, read from the text of /metrics. */
export class Figures {
  readonly #samples = new Map<string, Sample[]>();

  constructor(
    text: string,
    readonly at: number,
  ) {
    for (const row of text.split("\n")) {
      const m = line.exec(row);
      if (m === null) continue;
      const labels = Object.fromEntries([...(m[2] ?? "").matchAll(label)].map((l) => [l[1]!, l[2]!]));
      const samples = this.#samples.get(m[1]!) ?? [];
      samples.push({ labels, value: Number(m[3]) });
      this.#samples.set(m[1]!, samples);
    }
  }

  /** The samples of a name that have these labels. */
  samples(name: string, of: Labels = {}): Sample[] {
    return (this.#samples.get(name) ?? []).filter((s) => Object.entries(of).every(([k, v]) => s.labels[k] === v));
  }

  /** The sum of the samples of a name that have these labels; undefined: there are none. */
  value(name: string, of: Labels = {}): number | undefined {
    const found = this.samples(name, of);
    return found.length === 0 ? undefined : found.reduce((sum, s) => sum + s.value, 0);
  }
}

/** What happened between two times. */
export class Between {
  constructor(
    readonly from: Figures,
    readonly to: Figures,
  ) {}

  get seconds(): number {
    return Math.max((this.to.at - this.from.at) / 1000, 1e-3);
  }

  /** By how much a counter has grown. One that shrank began anew. */
  grown(name: string, of: Labels = {}): number {
    const now = this.to.value(name, of) ?? 0;
    const before = this.from.value(name, of) ?? 0;
    return now < before ? now : now - before;
  }

  rate(name: string, of: Labels = {}): number {
    return this.grown(name, of) / this.seconds;
  }

  /** A quantile of what was observed, as Prometheus estimates it; undefined: nothing was. */
  quantile(q: number, name: string, of: Labels = {}): number | undefined {
    const buckets = new Map<number, number>();
    for (const [figures, sign] of [
      [this.to, 1],
      [this.from, -1],
    ] as const) {
      for (const { labels, value } of figures.samples(`${name}_bucket`, of)) {
        const bound = labels["le"] === "+Inf" ? Infinity : Number(labels["le"]);
        buckets.set(bound, (buckets.get(bound) ?? 0) + sign * value);
      }
    }
    const sorted = [...buckets].sort(([a], [b]) => a - b);
    const all = sorted.at(-1)?.[1] ?? 0;
    if (all <= 0) return undefined;
    let below = 0;
    let start = 0;
    for (const [bound, up] of sorted) {
      if (up >= q * all) {
        if (bound === Infinity) return start;
        return up === below ? bound : start + ((bound - start) * (q * all - below)) / (up - below);
      }
      [below, start] = [up, bound];
    }
    return start;
  }
}
