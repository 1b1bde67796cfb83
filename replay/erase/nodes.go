package erase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skein-feed/skein/events/wait"
)

const (
	// nodePollInterval is the pause between two questions to nodes that are not done yet.
	nodePollInterval = 500 * time.Millisecond
	// nodeCallTimeout limits a call to a node. It is longer than flushTimeout, so that [Part.Flush]
	// can answer that it is not done yet, and the node does not count as unreachable.
	nodeCallTimeout = 2 * flushTimeout
	// renewInterval is the pause between two calls of [Part.Flush] while the log is scrubbed.
	renewInterval = holdTime / 4
)

// ErrNode means that a node cannot take part in an erasure. Nothing has been scrubbed.
var ErrNode = errors.New("erase: a node cannot take part")

// Node is another node of the cluster.
type Node struct {
	Name string
	// Alive reports whether the node has been heard of recently.
	Alive bool
}

// Nodes are the other nodes of the cluster. Flush and Clean call [Part.Flush] and [Part.Clean] of a
// node. err means that the node cannot be reached, and why is the error that the node answered.
type Nodes struct {
	// List returns the nodes that are alive and those that should hold partitions.
	List  func() []Node
	Flush func(ctx context.Context, name string, epoch uint32, seq uint64) (done bool, why string, err error)
	Clean func(ctx context.Context, name string, epoch uint32) (done bool, why string, err error)
}

// flushAll waits until every node has folded and flushed the log up to the sequence seq. It fails
// if a node cannot be reached.
func (n *Nodes) flushAll(ctx context.Context, epoch uint32, seq uint64) error {
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
				return unreachableError(node.Name, errors.New("it is not among the members of the cluster"))
			}

			callCtx, cancel := context.WithTimeout(ctx, nodeCallTimeout)
			done, why, err := n.Flush(callCtx, node.Name, epoch, seq)
			cancel()

			// Nothing was scrubbed yet, so the erasure can still be refused.
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return unreachableError(node.Name, err)
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
		if err := wait.For(ctx, nodePollInterval); err != nil {
			return err
		}
	}
}

// keepFlushed calls Flush of every node again and again, after flushAll, until stop is called. So
// the nodes build no generations meanwhile. If a node cannot be reached for long, it may build
// some.
func (n *Nodes) keepFlushed(ctx context.Context, epoch uint32, seq uint64) (stop func()) {
	if n == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var goroutines sync.WaitGroup
	goroutines.Go(func() {
		for wait.For(ctx, renewInterval) == nil {
			var calls sync.WaitGroup
			for _, node := range n.List() {
				calls.Go(func() {
					callCtx, cancel := context.WithTimeout(ctx, nodeCallTimeout)
					defer cancel()
					// The node has flushed the deletion. Whatever it answers, the erasure
					// continues.
					_, _, _ = n.Flush(callCtx, node.Name, epoch, seq)
				})
			}
			calls.Wait()
		}
	})
	return func() {
		cancel()
		goroutines.Wait()
	}
}

// unreachableError returns [ErrNode] for a node that cannot be reached.
func unreachableError(name string, err error) error {
	return fmt.Errorf("%w: %s cannot be reached: start it, or wait until other nodes have its partitions (--replace-after); "+
		"then erase again: %w", ErrNode, name, err)
}

// awaitRebuilt waits until every node has rebuilt its stores from the log of an epoch. It returns
// one line for each node. If a node cannot be reached, awaitRebuilt waits until the node is back,
// or until others have its partitions: the node then rebuilds its stores before it serves.
func (n *Nodes) awaitRebuilt(ctx context.Context, epoch uint32) (lines []string, err error) {
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

			callCtx, cancel := context.WithTimeout(ctx, nodeCallTimeout)
			done, why, err := n.Clean(callCtx, node.Name, epoch)
			cancel()

			switch {
			case ctx.Err() != nil:
				return lines, ctx.Err()
			case err == nil && why != "":
				objections = append(objections, fmt.Errorf("node %s has not rebuilt its stores yet, and tries again: %s", node.Name, why))
			case err == nil && done:
				cleaned = append(cleaned, node.Name)
				lines = append(lines, fmt.Sprintf("node %s: its stores were built anew", node.Name))
			default:
				waiting = true // the node cannot be reached, or is not done yet
			}
		}

		if len(objections) > 0 {
			return lines, errors.Join(objections...)
		}
		if !waiting {
			slices.SortFunc(lines, strings.Compare)
			return lines, nil
		}
		if err := wait.For(ctx, nodePollInterval); err != nil {
			return lines, err
		}
	}
}
