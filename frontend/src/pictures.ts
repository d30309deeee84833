// Pictures as vectors, and how they are drawn.

import { h } from "./dom";

const GREY = 150; // what a server that knows nothing would guess

export type Picture = Float32Array;

export class Album {
  readonly pictures: Picture[];

  constructor(
    encoded: string[],
    readonly side: number,
  ) {
    this.pictures = encoded.map(decode);
  }

  /** A canvas of the size of a picture; the style sheet scales it. */
  canvas(label: string): HTMLCanvasElement {
    return h("canvas", { width: this.side, height: this.side, role: "img", "aria-label": label, class: "picture" });
  }

  draw(canvas: HTMLCanvasElement, picture: Picture): void {
    const context = canvas.getContext("2d");
    if (!context) return;
    const image = context.createImageData(this.side, this.side);
    for (let from = 0, to = 0; from < picture.length; from += 3, to += 4) {
      image.data[to] = picture[from]!;
      image.data[to + 1] = picture[from + 1]!;
      image.data[to + 2] = picture[from + 2]!;
      image.data[to + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }

  /** What a server guesses for a person, given how much of everybody its best guess contains. */
  guess(shares: ArrayLike<number>): Picture {
    const size = this.pictures[0]?.length ?? 0;
    const guess = new Float32Array(size).fill(GREY);
    this.pictures.forEach((picture, person) => {
      const share = shares[person] ?? 0;
      if (Math.abs(share) > 1e-4) for (let at = 0; at < size; at++) guess[at]! += share * (picture[at]! - GREY);
    });
    return guess;
  }

  /** The mean of some people: a sum, drawn with the brightness of one picture. */
  mean(people: number[]): Picture {
    const shares = new Float32Array(this.pictures.length);
    for (const person of people) shares[person] = 1 / people.length;
    return this.guess(shares);
  }
}

/** Turn bytes in base 64 into numbers from 0 to 255. */
export function decode(encoded: string): Picture {
  return Float32Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
}

/** Return the full matrix of an upper triangle. */
export function symmetric(triangle: number[], size: number, scale: number): Float32Array[] {
  const matrix = Array.from({ length: size }, () => new Float32Array(size));
  let at = 0;
  for (let row = 0; row < size; row++) {
    for (let column = row; column < size; column++, at++) {
      matrix[row]![column] = matrix[column]![row] = (triangle[at] ?? 0) / scale;
    }
  }
  return matrix;
}
