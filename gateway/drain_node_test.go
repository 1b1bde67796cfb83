package gateway

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestDrainNodeCallsTheOperator(t *testing.T) {
	var calls []string
	w := newWorld(t, func(o *worldOptions) {
		o.Drain = func(_ context.Context, name string, drain bool) error {
			if name == "nobody" {
				return &operator.Refusal{Cause: operator.ErrUnknownNode, Text: "only ann"}
			}
			calls = append(calls, fmt.Sprint(name, " ", drain))
			return nil
		}
	})
	ask(w, w.admin.DrainNode, &skeinv1.DrainNodeRequest{Name: "node-1"})
	ask(w, w.admin.DrainNode, &skeinv1.DrainNodeRequest{Name: "node-1", Undo: true})
	if want := []string{"node-1 true", "node-1 false"}; !slices.Equal(calls, want) {
		t.Errorf("got the calls %q, want %q", calls, want)
	}

	t.Run("malformed name", func(t *testing.T) {
		_, err := w.admin.DrainNode(t.Context(), connect.NewRequest(&skeinv1.DrainNodeRequest{Name: "a.b"}))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "name")
	})
	t.Run("unknown node", func(t *testing.T) {
		_, err := w.admin.DrainNode(t.Context(), connect.NewRequest(&skeinv1.DrainNodeRequest{Name: "nobody"}))
		wantError(t, err, connect.CodeNotFound, "UNKNOWN_NODE", "")
		if want := "not_found: only ann"; err != nil && err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	})
}

func TestDrainNodeIsRefusedOutsideOfACluster(t *testing.T) {
	w := newWorld(t)
	_, err := w.admin.DrainNode(t.Context(), connect.NewRequest(&skeinv1.DrainNodeRequest{Name: "node-1"}))
	wantError(t, err, connect.CodeFailedPrecondition, "OPERATION_REFUSED", "")
}
