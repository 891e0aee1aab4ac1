/** Keep a fault of one part from emptying the whole page: say what went wrong instead. */
import { Component, type ComponentChildren } from "preact";
import { visible } from "../text";
import { Badge } from "./basics";

export class Guard extends Component<{ children: ComponentChildren }, { fault?: string }> {
  static override getDerivedStateFromError(error: unknown) {
    return { fault: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    const { fault } = this.state;
    if (fault === undefined) return this.props.children;
    return (
      <p class="page" role="alert">
        <Badge tone="no">this part cannot be shown</Badge> {visible(fault)}
      </p>
    );
  }
}
