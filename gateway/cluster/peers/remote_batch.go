package peers

import (
	"context"

	"github.com/skein-feed/skein/events"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
	"github.com/skein-feed/skein/proto/skein/peer/v1/peerv1connect"
)

// RemoteBatch collects the questions of one query that other nodes must answer, and their answers.
// It implements [projections.RemoteLookup] and the interfaces of the projections: a lookup returns
// a known answer, or adds a question to the batch. It must not be used concurrently.
type RemoteBatch struct {
	peers *Peers
	// localPartitions are the partitions of the view from which the query reads.
	localPartitions events.Partitions
	// atLeast is the position of the view. Every answer must contain it.
	atLeast string
	// newest is the newest of the positions of the view and of the answers.
	newest events.Position
	// answers has the answers to each question, one from each node that was asked.
	answers map[question][]*peerv1.Answer
	// pending has the questions that the next Fetch asks, and for each question the partitions
	// about which it must be asked.
	pending map[question]events.Partitions
	// batchLimit is the number of pending questions at which a run of the query should stop.
	batchLimit int
}

// NewRemoteBatch returns a batch without questions for a query that reads from a view. The view is
// at the given position and has the local partitions.
func NewRemoteBatch(p *Peers, local events.Partitions, position events.Position) *RemoteBatch {
	return &RemoteBatch{
		peers:           p,
		localPartitions: local,
		atLeast:         position.String(),
		newest:          position,
		answers:         map[question][]*peerv1.Answer{},
		pending:         map[question]events.Partitions{},
		batchLimit:      firstBatchLimit,
	}
}

const (
	// firstBatchLimit is the batchLimit before the first Fetch, about the entries of a page. Each
	// Fetch multiplies batchLimit by batchLimitGrowth, up to maxBatchLimit, so that a query that
	// examines many candidates to find a few needs few batches.
	firstBatchLimit  = 64
	batchLimitGrowth = 4
	maxBatchLimit    = 5000
)

// Holds is part of [projections.RemoteLookup].
func (r *RemoteBatch) Holds(home string) bool { return r.localPartitions.Has(PartitionOf(home)) }

// Full is part of [projections.RemoteLookup].
func (r *RemoteBatch) Full() bool { return len(r.pending) >= r.batchLimit }

// Unresolved is part of [projections.RemoteLookup]. It reports whether there are pending questions.
func (r *RemoteBatch) Unresolved() bool { return len(r.pending) > 0 }

// Newest returns the newest of the positions of the view and of the answers.
func (r *RemoteBatch) Newest() events.Position { return r.newest }

// lookUp returns the answer to a question about one home. If the answer is not known, it adds the
// question to the batch and returns false.
func (r *RemoteBatch) lookUp(home string, q question) (*peerv1.Answer, bool) {
	if known, ok := r.answers[q]; ok {
		return known[0], true
	}

	var need events.Partitions
	need.AddHome(home)
	r.pending[q] = need
	return nil, false
}

// lookUpOnAllNodes returns the answers to a question about all homes that this node does not hold,
// one per node that was asked. If they are not known, it adds the question to the batch and returns
// false.
func (r *RemoteBatch) lookUpOnAllNodes(q question) ([]*peerv1.Answer, bool) {
	if known, ok := r.answers[q]; ok {
		return known, true
	}

	all := events.AllPartitions()
	need := all.Without(&r.localPartitions)
	if need.Len() == 0 {
		// This node holds all partitions, as every node does in a cluster with no more nodes than
		// copies.
		return nil, true
	}
	r.pending[q] = need
	return nil, false
}

// Fetch asks other nodes all pending questions, as [Peers.Scatter] does: each node once, and
// another node what the first one does not answer. If it fails, it records no answer, and all
// questions stay pending.
func (r *RemoteBatch) Fetch(ctx context.Context) error {
	// Scatter works with single partitions, so a question about several partitions is split into
	// one part per partition. groupByQuestion needs the parts of a question to be adjacent.
	var all []partitionQuestion
	var partitions []uint8
	for q, need := range r.pending {
		_ = need.Each(func(partition uint8) error { // fails only if the function does
			all = append(all, partitionQuestion{q, partition})
			partitions = append(partitions, partition)
			return nil
		})
	}

	const procedure = peerv1connect.PeerServiceAskProcedure
	ask := func(ctx context.Context, n *Node, indexes []int) (keep func(), err error) {
		asked := groupByQuestion(all, indexes)
		res, _, err := Call[peerv1.AskRequest, peerv1.AskResponse](ctx, r.peers, n, procedure, asked.message(r.atLeast))
		if err != nil {
			return nil, err
		}
		position, err := events.ParsePosition(res.GetNewest())
		if err != nil || len(res.GetAnswers()) != len(asked.questions) {
			return nil, BadAnswerError(n.Name)
		}
		return func() { r.recordAnswers(asked, res.GetAnswers(), position) }, nil
	}
	err := r.peers.Scatter(ctx, procedure, partitions, ask)

	// If the query needs another batch, it probably needs many answers.
	r.batchLimit = min(r.batchLimit*batchLimitGrowth, maxBatchLimit)
	return err
}

// partitionQuestion is the part of a question that is about one partition.
type partitionQuestion struct {
	question  question
	partition uint8
}

// nodeQuestions are the questions that one node is asked.
type nodeQuestions struct {
	questions []question
	// partitions has, for each question, the partitions about which this node is asked.
	partitions []events.Partitions
}

// groupByQuestion joins those parts of all that have the given indexes, so that a node is asked
// each question once. The parts of one question must be adjacent in the slice all, and the indexes
// must be in ascending order, as Scatter passes them.
func groupByQuestion(all []partitionQuestion, indexes []int) *nodeQuestions {
	grouped := &nodeQuestions{}
	for _, i := range indexes {
		last := len(grouped.questions) - 1
		if last < 0 || grouped.questions[last] != all[i].question {
			grouped.questions = append(grouped.questions, all[i].question)
			grouped.partitions = append(grouped.partitions, events.Partitions{})
			last++
		}
		grouped.partitions[last].Add(all[i].partition)
	}
	return grouped
}

// message returns the request for the questions.
func (n *nodeQuestions) message(atLeast string) *peerv1.AskRequest {
	req := &peerv1.AskRequest{AtLeast: atLeast, Questions: make([]*peerv1.Question, len(n.questions))}
	var partitions events.Partitions
	for i := range n.questions {
		req.Questions[i] = n.questions[i].message()
		partitions.AddSet(&n.partitions[i])
	}
	req.Partitions = partitions.String()
	return req
}

// recordAnswers adds the answers that a node gave at the given position, one for each question that
// it was asked. A question stays pending until it was answered for all of its partitions.
func (r *RemoteBatch) recordAnswers(asked *nodeQuestions, answers []*peerv1.Answer, position events.Position) {
	if position.Seq > r.newest.Seq {
		r.newest = position
	}
	for i, q := range asked.questions {
		r.answers[q] = append(r.answers[q], answers[i])
		need := r.pending[q]
		rest := need.Without(&asked.partitions[i])
		if rest.Len() > 0 {
			r.pending[q] = rest
		} else {
			delete(r.pending, q)
		}
	}
}
