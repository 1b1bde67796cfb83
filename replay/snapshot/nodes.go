package snapshot

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events/bucket"
)

// nodePrefix begins the names of what the nodes of a cluster have in the bucket that they share: nodes/<name>/ is the bucket of a node.
const nodePrefix = "nodes/"

var nodeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// OfNode returns the bucket of the snapshots of a node, in the one that all nodes of its cluster share.
func OfNode(shared bucket.Bucket, node string) (bucket.Bucket, error) {
	if !nodeForm.MatchString(node) {
		return nil, fmt.Errorf("snapshot: the name of a node that has snapshots is of letters, digits, - and _, "+
			"a letter or digit first, not %q", node)
	}
	return bucket.Within(shared, nodePrefix+node)
}

// Nodes returns the names of the nodes that have something in the bucket that they share, also of those that are gone.
func Nodes(ctx context.Context, shared bucket.Bucket) (names []string, err error) {
	list, err := shared.List(ctx, nodePrefix)
	if err != nil {
		return nil, err
	}
	for _, o := range list {
		name, _, ok := strings.Cut(strings.TrimPrefix(o.Name, nodePrefix), "/")
		if ok && nodeForm.MatchString(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
