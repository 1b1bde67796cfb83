package command

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// PrintCluster prints the nodes of a cluster, and which partitions lack copies.
func PrintCluster(w io.Writer, c *skeinv1.ClusterStatus) error {
	t := NewTable(w, "NODE", "ADDRESS", "ZONE", "WEIGHT", "SERVES", "GIVEN", "POSITION", "STATE")
	for _, n := range c.GetNodes() {
		var state []string
		for _, s := range []struct {
			is   bool
			text string
		}{{n.GetSelf(), "answers this"}, {n.GetDraining(), "drained"}, {n.GetAway(), "away"}} {
			if s.is {
				state = append(state, s.text)
			}
		}
		t.Row(n.GetName(), cmp.Or(n.GetAddr(), "-"), cmp.Or(n.GetZone(), "-"), strconv.FormatUint(uint64(n.GetWeight()), 10),
			strconv.FormatUint(uint64(n.GetServes()), 10), strconv.FormatUint(uint64(n.GetGiven()), 10), cmp.Or(n.GetPosition(), "-"),
			strings.Join(state, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if n := c.GetUnservedPartitions(); n > 0 {
		fmt.Fprintf(w, "NO NODE SERVES %s: calls about their users fail\n", Plural(uint64(n), "partition", "partitions"))
	}
	if n := c.GetShortPartitions(); n > 0 {
		fmt.Fprintf(w, "LACKS COPIES: %s served by fewer than %s\n", Plural(uint64(n), "partition is", "partitions are"),
			Plural(uint64(c.GetCopies()), "node", "nodes"))
	}
	return nil
}
