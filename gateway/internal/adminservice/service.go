// Package adminservice answers AdminService: the state of the log and of every projection (status.go), what was lost of the log
// (accept_hole.go), the nodes of a cluster (drain_node.go), and the operations that an [operator.Operator] does (admin.go).
package adminservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Service answers AdminService.
type Service struct {
	*views.Views
	Options
}

// Options are what AdminService has beside the stores.
type Options struct {
	// Operator does the operations; nil means those methods are not mounted.
	Operator operator.Operator
	// Report adds to the answers of GetStatus; it may be nil.
	Report func(context.Context, *skeinv1.GetStatusResponse)
	// Drain takes the partitions away from a node of the cluster, or gives it partitions again; nil means there is no cluster.
	Drain   func(ctx context.Context, name string, on bool) error
	Metrics *metrics.Metrics
	Growth  *metrics.Growth
}

// New answers from the stores and from what the options have.
func New(v *views.Views, o Options) *Service { return &Service{v, o} }
