package peers

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

var (
	_ graph.RemoteLookup    = (*RemoteBatch)(nil)
	_ inbox.RemoteLookup    = (*RemoteBatch)(nil)
	_ counters.RemoteLookup = (*RemoteBatch)(nil)
)

// question is a lookup that another node must answer. It is comparable, so it can be the key of a
// map. Its kind determines which of the other fields are used.
type question struct {
	kind questionKind
	// subject is the user or item that the question is about. It is empty for the global trending
	// list. object is what the question asks about the subject, such as a pin or a follower.
	subject, object string
	// cursor is where a list continues. If it is empty, the list begins at its first entry. It is a
	// string, because a slice is not comparable.
	cursor string
	// size is how many entries of a list are wanted at most.
	size int
	// hasBoard says that object is the board of an outbox. An empty board is the default board. If
	// hasBoard is false, the question is about the outbox of the user.
	hasBoard bool
	// seq is the sequence as of which scores are computed.
	seq uint64
}

// questionKind is the kind of a question. Each kind has a message of its own in the proto.
type questionKind byte

const (
	pinQuestion questionKind = iota
	outboxQuestion
	boardQuestion
	followQuestion
	scoreQuestion
	ownReactionsQuestion
	reactionsQuestion
	trendingQuestion
	followeesQuestion
	reactorsQuestion
	hidingQuestion
)

// message returns the question as it is sent.
func (q *question) message() *peerv1.Question {
	m := &peerv1.Question{}
	switch size := uint32(q.size); q.kind {
	case pinQuestion:
		m.Of = &peerv1.Question_Pin{Pin: &peerv1.PinName{Owner: q.subject, Id: q.object}}
	case outboxQuestion:
		o := &peerv1.Outbox{Owner: q.subject, From: []byte(q.cursor), Size: size}
		if q.hasBoard {
			o.Board = &q.object
		}
		m.Of = &peerv1.Question_Outbox{Outbox: o}
	case boardQuestion:
		m.Of = &peerv1.Question_Board{Board: &peerv1.Board{Owner: q.subject, Id: q.object}}
	case followQuestion:
		m.Of = &peerv1.Question_Follow{Follow: &peerv1.Follow{User: q.subject, Follower: q.object}}
	case scoreQuestion:
		m.Of = &peerv1.Question_Score{Score: &peerv1.Score{Item: q.subject, Seq: q.seq}}
	case ownReactionsQuestion:
		m.Of = &peerv1.Question_OwnReactions{OwnReactions: &peerv1.OwnReactions{User: q.subject, Item: q.object}}
	case reactionsQuestion:
		m.Of = &peerv1.Question_Reactions{Reactions: &peerv1.Reactions{
			User: q.subject, Kind: q.object, After: []byte(q.cursor), Size: size,
		}}
	case reactorsQuestion:
		m.Of = &peerv1.Question_Reactors{Reactors: &peerv1.Reactors{
			Item: q.subject, Kind: q.object, After: []byte(q.cursor), Size: size,
		}}
	case trendingQuestion:
		m.Of = &peerv1.Question_Trending{Trending: &peerv1.Trending{
			Owner: q.subject, Seq: q.seq, After: []byte(q.cursor), Size: size,
		}}
	case followeesQuestion:
		m.Of = &peerv1.Question_Followees{Followees: &peerv1.Followees{User: q.subject}}
	case hidingQuestion:
		m.Of = &peerv1.Question_Hiding{Hiding: &peerv1.Hiding{User: q.subject, Item: q.object}}
	}
	return m
}

// The methods below implement the interfaces of the projections. Each of them returns what another
// node has answered to a question. If no node has answered it yet, known is false, and the question
// is added to the batch.

// Pin is part of [inbox.RemoteLookup].
func (r *RemoteBatch) Pin(owner, id string) (pin *inbox.Pin, known bool) {
	a, known := r.lookUp(owner, question{kind: pinQuestion, subject: owner, object: id})
	if len(a.GetPins()) == 0 {
		return nil, known
	}
	return pinFromMessage(owner, a.GetPins()[0]), known
}

// pinFromMessage is the reverse of [PinMessage].
func pinFromMessage(owner string, p *peerv1.Pin) *inbox.Pin {
	return &inbox.Pin{
		Owner: owner, ID: p.GetId(), Board: p.GetBoard(), Item: p.GetItem(), Repin: p.GetRepin(), RepinOwner: p.GetRepinOwner(),
		RepinPin: p.GetRepinPin(), Attributes: p.GetAttributes(), Created: events.Micros(p.GetCreated()),
		Edited: events.Micros(p.GetEdited()),
	}
}

// PinMessage returns a pin as nodes send it. The owner is not part of the message.
func PinMessage(p *inbox.Pin) *peerv1.Pin {
	return &peerv1.Pin{
		Id: p.ID, Board: p.Board, Item: p.Item, Repin: p.Repin, RepinOwner: p.RepinOwner, RepinPin: p.RepinPin,
		Attributes: p.Attributes, Created: int64(p.Created), Edited: int64(p.Edited),
	}
}

// Outbox is part of [inbox.RemoteLookup]. It also records each pin of the answer as the answer to a
// question about that pin.
func (r *RemoteBatch) Outbox(
	owner string, board *string, from []byte, n int,
) (pins []inbox.Pin, next []byte, known bool) {
	q := question{kind: outboxQuestion, subject: owner, cursor: string(from), size: n}
	if board != nil {
		q.object = *board
		q.hasBoard = true
	}

	a, known := r.lookUp(owner, q)
	for _, p := range a.GetPins() {
		pins = append(pins, *pinFromMessage(owner, p))
		// Next, the query looks up each pin of the outbox. Without this, it would need another
		// batch for that.
		aboutPin := question{kind: pinQuestion, subject: owner, object: p.GetId()}
		if _, ok := r.answers[aboutPin]; !ok {
			r.answers[aboutPin] = []*peerv1.Answer{{Pins: []*peerv1.Pin{p}}}
		}
	}
	if len(a.GetNext()) > 0 { // otherwise next stays nil: the proto cannot tell nil from empty
		next = a.GetNext()
	}
	return pins, next, known
}

// Board is part of [graph.RemoteLookup].
func (r *RemoteBatch) Board(owner, id string) (exists, known bool) {
	a, known := r.lookUp(owner, question{kind: boardQuestion, subject: owner, object: id})
	return a.GetYes(), known
}

// FollowedBy is part of [graph.RemoteLookup].
func (r *RemoteBatch) FollowedBy(user, follower string) (follow graph.Follow, known bool) {
	a, known := r.lookUp(user, question{kind: followQuestion, subject: user, object: follower})
	return graph.Follow{Kind: graph.FollowKind(a.GetKind()), Since: events.Micros(a.GetSince())}, known
}

// Followees is part of [graph.RemoteLookup].
func (r *RemoteBatch) Followees(user string) (n int64, known bool) {
	a, known := r.lookUp(user, question{kind: followeesQuestion, subject: user})
	return a.GetNumber(), known
}

// Hiding is part of [inbox.RemoteLookup].
func (r *RemoteBatch) Hiding(user, item string) (total int64, hides, known bool) {
	a, known := r.lookUp(user, question{kind: hidingQuestion, subject: user, object: item})
	return a.GetNumber(), a.GetYes(), known
}

// Score is part of [counters.RemoteLookup].
func (r *RemoteBatch) Score(item string, seq uint64) (score int64, scored, known bool) {
	a, known := r.lookUp(item, question{kind: scoreQuestion, subject: item, seq: seq})
	return a.GetNumber(), a.GetYes(), known
}

// OwnReactions is part of [counters.RemoteLookup]. The home of the rows is the item, not the user.
func (r *RemoteBatch) OwnReactions(user, item string) (kinds []string, known bool) {
	a, known := r.lookUp(item, question{kind: ownReactionsQuestion, subject: user, object: item})
	return a.GetKinds(), known
}

// Reactions is part of [counters.RemoteLookup]. The rows are in the partitions of the items, so it
// returns one part of the list per node that was asked, and an item may be in several parts.
func (r *RemoteBatch) Reactions(
	user, kind string, after counters.PageCursor, n int,
) (parts []counters.ReactionPart, known bool) {
	q := question{kind: reactionsQuestion, subject: user, object: kind, cursor: string(after), size: n}
	answers, known := r.lookUpOnAllNodes(q)
	for _, a := range answers {
		p := counters.ReactionPart{More: a.GetYes()}
		for _, e := range a.GetEntries() {
			p.Items = append(p.Items, counters.ReactedItem{Item: e.GetItem(), Since: events.Micros(e.GetValue())})
		}
		parts = append(parts, p)
	}
	return parts, known
}

// Reactors is part of [counters.RemoteLookup].
func (r *RemoteBatch) Reactors(
	item, kind string, after counters.PageCursor, n int,
) (part counters.ReactorPart, known bool) {
	q := question{kind: reactorsQuestion, subject: item, object: kind, cursor: string(after), size: n}
	a, known := r.lookUp(item, q)
	part.More = a.GetYes()
	part.Total = a.GetNumber()
	for _, e := range a.GetEntries() {
		part.Reactors = append(part.Reactors, counters.Reactor{User: e.GetItem(), Since: events.Micros(e.GetValue())})
	}
	return part, known
}

// Candidates is part of [counters.RemoteLookup]. The rows are in the partitions of the items, so it
// returns one part of the list per node that was asked.
func (r *RemoteBatch) Candidates(
	owner string, seq uint64, after []byte, n int,
) (parts []counters.CandidatePart, known bool) {
	q := question{kind: trendingQuestion, subject: owner, seq: seq, cursor: string(after), size: n}
	answers, known := r.lookUpOnAllNodes(q)
	for _, a := range answers {
		p := counters.CandidatePart{More: a.GetYes()}
		for _, e := range a.GetEntries() {
			p.Items = append(p.Items, counters.TrendingItem{Item: e.GetItem(), Score: e.GetValue()})
		}
		parts = append(parts, p)
	}
	return parts, known
}
