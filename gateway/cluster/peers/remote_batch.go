package peers

import (
	"context"

	"github.com/skein-feed/skein/events"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
	"github.com/skein-feed/skein/proto/skein/peer/v1/peerv1connect"
)

// RemoteBatch is what a query over one state asks of other nodes: [projections.Elsewhere], and those of the projections. It belongs to one
// goroutine.
type RemoteBatch struct {
	peers           *Peers
	localPartitions events.Partitions
	// atLeast is the position of the state, which every answer contains.
	atLeast string
	// newest is the greatest position that an answer was of.
	newest  events.Position
	answers map[question][]*peerv1.Answer
	// wanted has what is to be fetched, and of which partitions.
	pending map[question]events.Partitions
	// most is how much is wanted at a time.
	batchLimit int
}

// NewRemoteBatch begins with nothing known, over a state with some partitions.
func NewRemoteBatch(p *Peers, here events.Partitions, at events.Position) *RemoteBatch {
	return &RemoteBatch{
		peers: p, localPartitions: here, atLeast: at.String(), newest: at, batchLimit: firstBatchLimit,
		answers: map[question][]*peerv1.Answer{}, pending: map[question]events.Partitions{},
	}
}

const (
	// firstWanted is how much is wanted before a query is run for a second time: about a page. It grows by wantedGrowth with each round,
	// so that a query that looks through many candidates for few needs few rounds.
	firstBatchLimit, batchLimitGrowth = 64, 4
	// maxWanted bounds what is wanted in a round.
	maxBatchLimit = 5000
)

// Holds is part of [projections.Elsewhere].
func (r *RemoteBatch) Holds(home string) bool { return r.localPartitions.Has(PartitionOf(home)) }

// Full is part of [projections.Elsewhere].
func (r *RemoteBatch) Full() bool { return len(r.pending) >= r.batchLimit }

// Wanting is part of [projections.Elsewhere].
func (r *RemoteBatch) Wanting() bool { return len(r.pending) > 0 }

// Newest is the greatest position that an answer was of, or that of the state.
func (r *RemoteBatch) Newest() events.Position { return r.newest }

// about returns the answer to a question about one home, or notes it.
func (r *RemoteBatch) lookUp(home string, q question) (*peerv1.Answer, bool) {
	if known, ok := r.answers[q]; ok {
		return known[0], true
	}
	var need events.Partitions
	need.AddHome(home)
	r.pending[q] = need
	return nil, false
}

// ofAll returns the answers of all nodes that were asked, or notes the question.
func (r *RemoteBatch) lookUpOnAllNodes(q question) ([]*peerv1.Answer, bool) {
	if known, ok := r.answers[q]; ok {
		return known, true
	}
	all := events.AllPartitions()
	need := all.Without(&r.localPartitions)
	if need.Len() == 0 {
		return nil, true // all is here, as where there are no more nodes than copies
	}
	r.pending[q] = need
	return nil, false
}

// Fetch asks for all that is wanted, each node once; what a node does not answer is asked of another one.
func (r *RemoteBatch) Fetch(ctx context.Context) error {
	var units []partitionQuestion
	var partitions []uint8
	for q, need := range r.pending {
		_ = need.Each(func(partition uint8) error {
			units, partitions = append(units, partitionQuestion{q, partition}), append(partitions, partition)
			return nil
		})
	}
	const procedure = peerv1connect.PeerServiceAskProcedure
	err := r.peers.Scatter(ctx, procedure, partitions, func(ctx context.Context, n *Node, of []int) (keep func(), err error) {
		a := groupByQuestion(units, of)
		res, _, err := Call[peerv1.AskRequest, peerv1.AskResponse](ctx, r.peers, n, procedure, a.message(r.atLeast))
		if err != nil {
			return nil, err
		}
		at, err := events.ParsePosition(res.GetNewest())
		if err != nil || len(res.GetAnswers()) != len(a.questions) {
			return nil, BadAnswerError(n.Name)
		}
		return func() { r.recordAnswers(a, res.GetAnswers(), at) }, nil
	})
	r.batchLimit = min(r.batchLimit*batchLimitGrowth, maxBatchLimit)
	return err
}

// unit is a question about a partition.
type partitionQuestion struct {
	question  question
	partition uint8
}

// ask is what one node is asked.
type nodeQuestions struct {
	questions []question
	// parts are the partitions of each question.
	partitions []events.Partitions
}

// askOf collects some units. Those of a question stand together.
func groupByQuestion(units []partitionQuestion, of []int) *nodeQuestions {
	a := &nodeQuestions{}
	for _, i := range of {
		last := len(a.questions) - 1
		if last < 0 || a.questions[last] != units[i].question {
			a.questions, a.partitions = append(a.questions, units[i].question), append(a.partitions, events.Partitions{})
			last++
		}
		a.partitions[last].Add(units[i].partition)
	}
	return a
}

func (a *nodeQuestions) message(atLeast string) *peerv1.AskRequest {
	req := &peerv1.AskRequest{AtLeast: atLeast, Questions: make([]*peerv1.Question, len(a.questions))}
	var parts events.Partitions
	for i := range a.questions {
		req.Questions[i] = a.questions[i].message()
		parts.AddSet(&a.partitions[i])
	}
	req.Partitions = parts.String()
	return req
}

// take keeps the answers of a node.
func (r *RemoteBatch) recordAnswers(a *nodeQuestions, answers []*peerv1.Answer, at events.Position) {
	if at.Seq > r.newest.Seq {
		r.newest = at
	}
	for i, q := range a.questions {
		r.answers[q] = append(r.answers[q], answers[i])
		need := r.pending[q]
		if rest := need.Without(&a.partitions[i]); rest.Len() > 0 {
			r.pending[q] = rest
		} else {
			delete(r.pending, q)
		}
	}
}
