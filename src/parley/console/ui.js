/* preact and htm, bound together: every component imports its tools from here. */

import { Component, createContext, h } from "./vendor/preact.js";
import { useContext, useEffect, useReducer } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { Component, createContext, Fragment, h, render } from "./vendor/preact.js";
export * from "./vendor/hooks.js";
export const html = htm.bind(h);

/* What every view needs: {api, me, questions, connection}. Set by app.js. */
export const Console = createContext(null);
export const useConsole = () => useContext(Console);

/* A function that renders the component again. */
export function useRefresh() {
  return useReducer((count) => count + 1, 0)[1];
}

/* Render again when a store changes. A store has `subscribe(listener)`, which returns how to stop. */
export function useStore(store) {
  const refresh = useRefresh();
  const seen = store?.revision;
  useEffect(() => {
    if (!store) return undefined;
    if (store.revision !== seen) refresh(); /* it changed between the drawing and now */
    return store.subscribe(refresh);
  }, [store]);
  return store;
}

/* Skip rendering while `same(before, after)` holds. */
export function memo(component, same) {
  return class Memo extends Component {
    shouldComponentUpdate(next) {
      return !same(this.props, next);
    }
    render(props) {
      return h(component, props);
    }
  };
}

/* A value that others follow. */
export class Store {
  constructor() {
    this.revision = 0;
    this._listeners = new Set();
  }
  subscribe(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }
  changed() {
    this.revision++;
    for (const listener of [...this._listeners]) listener(this);
  }
}
