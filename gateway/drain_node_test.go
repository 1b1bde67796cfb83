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

func TestDrainNode(t *testing.T) {
	var drained []string
	w := newWorld(t, func(o *worldOptions) {
		o.Drain = func(_ context.Context, name string, on bool) error {
			if name == "nobody" {
				return &operator.Refusal{Cause: operator.ErrUnknownNode, Text: "only ann"}
			}
			drained = append(drained, fmt.Sprint(name, " ", on))
			return nil
		}
	})
	ask(w, w.admin.DrainNode, &skeinv1.DrainNodeRequest{Name: "node-1"})
	ask(w, w.admin.DrainNode, &skeinv1.DrainNodeRequest{Name: "node-1", Undo: true})
	if want := []string{"node-1 true", "node-1 false"}; !slices.Equal(drained, want) {
		t.Errorf("%q, want %q", drained, want)
	}
	drain := func(w *world, name string) error {
		_, err := w.admin.DrainNode(t.Context(), connect.NewRequest(&skeinv1.DrainNodeRequest{Name: name}))
		return err
	}
	wantError(t, drain(w, "a.b"), connect.CodeInvalidArgument, "INVALID_FIELD", "name")
	err := drain(w, "nobody")
	if wantError(t, err, connect.CodeNotFound, "UNKNOWN_NODE", ""); err.Error() != "not_found: only ann" {
		t.Error(err)
	}
}

func TestDrainOutsideOfACluster(t *testing.T) {
	w := newWorld(t)
	_, err := w.admin.DrainNode(t.Context(), connect.NewRequest(&skeinv1.DrainNodeRequest{Name: "node-1"}))
	wantError(t, err, connect.CodeFailedPrecondition, "OPERATION_REFUSED", "")
}
