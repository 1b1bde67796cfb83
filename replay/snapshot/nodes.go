package snapshot

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events/bucket"
)

// nodePrefix begins the names of the objects of nodes in the bucket that the nodes of a cluster
// share: nodes/NODE/ is the bucket of a node.
const nodePrefix = "nodes/"

// nodeNamePattern matches the names of nodes that may have snapshots.
var nodeNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// OfNode returns the bucket for the snapshots of a node, which is a part of the bucket that all
// nodes of the cluster share.
func OfNode(shared bucket.Bucket, node string) (bucket.Bucket, error) {
	if !nodeNamePattern.MatchString(node) {
		return nil, fmt.Errorf("snapshot: the name of a node that has snapshots is of letters, digits, - and _, "+
			"a letter or digit first, not %q", node)
	}
	return bucket.Within(shared, nodePrefix+node)
}

// Nodes returns the names of all nodes that have objects in the shared bucket, including nodes that
// no longer exist.
func Nodes(ctx context.Context, shared bucket.Bucket) (names []string, err error) {
	list, err := shared.List(ctx, nodePrefix)
	if err != nil {
		return nil, err
	}
	for _, o := range list {
		name, _, ok := strings.Cut(strings.TrimPrefix(o.Name, nodePrefix), "/")
		if ok && nodeNamePattern.MatchString(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
