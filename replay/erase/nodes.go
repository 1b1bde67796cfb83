package erase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/events/wait"
)

const (
	// pollEvery is the pause between two questions to nodes that are not done.
	pollEvery = 500 * time.Millisecond
	// callTime bounds a call to a node. It is longer than [Part.Flush] waits.
	callTime = 2 * flushWait
)

// ErrNode means that a node cannot take part in an erasure. Nothing was scrubbed.
var ErrNode = errors.New("erase: a node cannot take part")

// Node is another node of the cluster.
type Node struct {
	Name string
	// Alive reports whether it was heard of lately.
	Alive bool
}

// Nodes are the other nodes of the cluster. An error of Flush or Clean is one of reaching the node; why says what the node itself objects
// to. See [Part.Flush] and [Part.Clean], which answer.
type Nodes struct {
	// List returns the nodes that are alive, and those that should hold partitions.
	List  func() []Node
	Flush func(ctx context.Context, name string, epoch uint32, seq uint64) (done bool, why string, err error)
	Clean func(ctx context.Context, name string, epoch uint32) (done bool, why string, err error)
}

// flush returns when every node has folded and flushed the log up to a deletion. A node that cannot be reached is an error.
func (n *Nodes) flush(ctx context.Context, epoch uint32, seq uint64) error {
	if n == nil {
		return nil
	}
	var flushed []string
	for {
		waiting := false
		for _, node := range n.List() {
			if slices.Contains(flushed, node.Name) {
				continue
			}
			if !node.Alive {
				return unreachable(node.Name, errors.New("it is not among the members of the cluster"))
			}
			within, cancel := context.WithTimeout(ctx, callTime)
			done, why, err := n.Flush(within, node.Name, epoch, seq)
			cancel()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return unreachable(node.Name, err)
			case why != "":
				return fmt.Errorf("%w: %s: %s", ErrNode, node.Name, why)
			case done:
				flushed = append(flushed, node.Name)
			default:
				waiting = true
			}
		}
		if !waiting {
			return nil
		}
		if err := wait.For(ctx, pollEvery); err != nil {
			return err
		}
	}
}

func unreachable(name string, err error) error {
	return fmt.Errorf("%w: %s cannot be reached: start it, or wait until its partitions were given to others (--replace-after), "+
		"then erase again: %w", ErrNode, name, err)
}

// clean returns when every node has built its stores from the log of an epoch, with a line for each. A node that cannot be reached is
// waited for until it is back, or others have its partitions: it then builds its stores anew before it serves.
func (n *Nodes) clean(ctx context.Context, epoch uint32) (lines []string, err error) {
	if n == nil {
		return nil, nil
	}
	var cleaned []string
	for {
		var objections []error
		waiting := false
		for _, node := range n.List() {
			if slices.Contains(cleaned, node.Name) {
				continue
			}
			within, cancel := context.WithTimeout(ctx, callTime)
			done, why, err := n.Clean(within, node.Name, epoch)
			cancel()
			switch {
			case ctx.Err() != nil:
				return lines, ctx.Err()
			case err == nil && why != "":
				objections = append(objections, fmt.Errorf("node %s does not have its stores built anew yet, and tries again: %s", node.Name, why))
			case err == nil && done:
				cleaned = append(cleaned, node.Name)
				lines = append(lines, fmt.Sprintf("node %s: its stores were built anew", node.Name))
			default:
				waiting = true
			}
		}
		if len(objections) > 0 {
			return lines, errors.Join(objections...)
		}
		if !waiting {
			slices.SortFunc(lines, strings.Compare)
			return lines, nil
		}
		if err := wait.For(ctx, pollEvery); err != nil {
			return lines, err
		}
	}
}
