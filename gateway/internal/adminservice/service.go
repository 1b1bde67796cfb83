// Package adminservice answers AdminService, which the people who operate the service call, and not
// the products that use it.
//
//	status.go        GetStatus: the state of the log and of every projection
//	accept_hole.go   AcceptLogHole: continue although the log has lost envelopes
//	drain_node.go    DrainNode: assign no partitions to a node of the cluster
//	operations.go    operations, such as rebuilds and snapshots, which an [operator.Operator] runs
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

// Options has what AdminService needs in addition to the stores.
type Options struct {
	// Operator runs operations. If it is nil, the methods about operations are not mounted.
	Operator operator.Operator
	// Report adds to the answers of GetStatus what only the process knows. It may be nil.
	Report func(context.Context, *skeinv1.GetStatusResponse)
	// Drain stops assigning partitions to the named node of the cluster. If drain is false, it
	// resumes assigning them. Drain is nil outside of a cluster.
	Drain func(ctx context.Context, node string, drain bool) error
	// Metrics has the counts of feed reads, which GetStatus returns.
	Metrics *metrics.Metrics
	// Growth forecasts when the log will be full.
	Growth *metrics.Growth
}

// New returns a service that reads from the stores of v.
func New(v *views.Views, o Options) *Service { return &Service{v, o} }
