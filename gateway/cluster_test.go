package gateway

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// cluster is a service of several nodes over one log, and one process that holds everything.
type cluster struct {
	whole *world
	nodes []*world
	// alive are the nodes that others find.
	alive atomic.Pointer[[]Node]
	// stopPeers ends the listeners of the nodes for each other.
	stopPeers []func()
}

// smallFeeds has few entries in an inbox and pulls whom more than one follows in a partition, so that feeds need outboxes.
func smallFeeds(o *worldOptions) {
	settings := inbox.DefaultSettings()
	settings.Keep, settings.Threshold = 20, 1
	o.inbox = &settings
}

// newCluster starts so many nodes, each of which holds every partition that is its turn or that of the one before: two replicas.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{whole: newWorld(t, withFeeds, withSeen, smallFeeds)}
	c.alive.Store(&[]Node{})
	for i := range nodes {
		held := &projections.Partitions{}
		for p := range events.NumPartitions {
			if p%nodes == i || (p+1)%nodes == i {
				held.Add(uint8(p))
			}
		}
		name := fmt.Sprintf("node-%d", i)
		n := c.whole.replica(withFeeds, withSeen, smallFeeds, func(o *worldOptions) {
			o.partitions = held
			o.Nodes = func() []Node {
				return slices.DeleteFunc(slices.Clone(*c.alive.Load()), func(n Node) bool { return n.Name == name })
			}
		})
		if got := n.server.Serves(); got != *held {
			t.Fatalf("%s serves %s", name, &got)
		}
		c.nodes = append(c.nodes, n)
		c.join(t, name, n, held)
	}
	return c
}

// join lets the other nodes find a node.
func (c *cluster) join(t *testing.T, name string, n *world, held *projections.Partitions) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.server.RunPeers(ctx, l) }()
	stopped := false
	stop := func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	c.stopPeers = append(c.stopPeers, stop)
	t.Cleanup(stop)
	all := append(slices.Clone(*c.alive.Load()), Node{Name: name, Addr: l.Addr().String(), Serves: *held})
	c.alive.Store(&all)
}

// someEvents are events of all kinds between few users.
func someEvents(rng *rand.Rand, n int) (evs []*skeinv1.Event) {
	user := func() string { return fmt.Sprintf("u%d", rng.IntN(14)) }
	item := func() string { return fmt.Sprintf("i%d", rng.IntN(40)) }
	board := func() string { return fmt.Sprintf("b%d", rng.IntN(3)) }
	pin := func() string { return fmt.Sprintf("p%d", rng.IntN(30)) }
	pairs := []func(a, b string) *skeinv1.Event{follow, follow, follow, follow, unfollow, block, unblocked, mute, hideRepins, showRepins}
	for len(evs) < n {
		a, b := user(), user()
		switch k := rng.IntN(22); {
		case k < 5 && a != b:
			evs = append(evs, pairs[rng.IntN(len(pairs))](a, b))
		case k < 7 && a != b:
			evs = append(evs, followBoard(a, b, board()))
		case k == 7 && a != b:
			evs = append(evs, unfollowBoard(a, b, board()))
		case k < 12:
			evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
				Pin: &skeinv1.Pin{OwnerId: a, PinId: pin()}, BoardId: board(), ItemId: item(),
			}}})
		case k == 12:
			evs = append(evs, movedTo(a, pin(), board()))
		case k == 13:
			evs = append(evs, unpinned(a, pin()))
		case k == 14:
			evs = append(evs, liked(a, item()))
		case k == 15:
			evs = append(evs, liked(a, item()), unliked(b, item()))
		case k == 16:
			evs = append(evs, played(a, item()), played(b, item()))
		case k == 17:
			evs = append(evs, served(a, item(), "other-"+item()))
		case k == 18:
			evs = append(evs, createBoard(a, board(), "title"))
		case k == 19 && rng.IntN(8) == 0:
			evs = append(evs, deletedBoard(a, board()))
		case k == 20 && rng.IntN(40) == 0:
			evs = append(evs, deletedUser(a))
		case k == 21:
			evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_ReaderActive{ReaderActive: &skeinv1.ReaderActive{UserId: a}}})
		}
	}
	return evs
}

// answerTo puts a request of any kind.
func (w *world) answerTo(req proto.Message) (proto.Message, error) {
	m := methodOf(req)
	body, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	status, _, body := w.post("/"+string(m.Parent().FullName())+"/"+string(m.Name()), "application/proto", bytes.NewReader(body))
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", status, body)
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	res := kind.New().Interface()
	return res, proto.Unmarshal(body, res)
}

// methodOf is the method that takes a request.
func methodOf(req proto.Message) (found protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("skein.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				if m := f.Services().Get(i).Methods().Get(j); m.Input() == req.ProtoReflect().Descriptor() {
					found = m
				}
			}
		}
		return found == nil
	})
	return found
}

// someQuestion is a question about a few users.
func someQuestion(rng *rand.Rand, at string) proto.Message {
	user := func() string { return fmt.Sprintf("u%d", rng.IntN(14)) }
	item := func() string { return fmt.Sprintf("i%d", rng.IntN(40)) }
	board := func() *skeinv1.Board {
		return &skeinv1.Board{OwnerId: user(), BoardId: fmt.Sprintf("b%d", rng.IntN(3))}
	}
	pin := func() *skeinv1.Pin { return &skeinv1.Pin{OwnerId: user(), PinId: fmt.Sprintf("p%d", rng.IntN(30))} }
	size := int32(1 + rng.IntN(9))
	order := []skeinv1.FeedOrder{newestFirst, byHeat}[rng.IntN(2)]
	yes := func() bool { return rng.IntN(2) == 0 }
	users := []string{user(), user(), user(), user(), user(), user()}
	switch rng.IntN(24) {
	case 0:
		req := &skeinv1.CheckFollowsRequest{AtLeast: at, IncludeTimes: yes()}
		for range 6 {
			b := board()
			req.Pairs = append(req.Pairs, userPair(user(), user()), boardPair(user(), b.GetOwnerId(), b.GetBoardId()))
		}
		return req
	case 1:
		return &skeinv1.FilterFollowedRequest{ViewerId: user(), UserIds: users, Direction: skeinv1.FollowDirection(rng.IntN(4)), AtLeast: at}
	case 2:
		return &skeinv1.FilterFollowedRequest{ViewerId: user(), Boards: []*skeinv1.Board{board(), board(), board()}, AtLeast: at}
	case 3:
		return &skeinv1.BatchGetRelationshipsRequest{ViewerId: user(), UserIds: users, AtLeast: at}
	case 4:
		return &skeinv1.BatchGetFollowCountsRequest{UserIds: users, Boards: []*skeinv1.Board{board(), board()}, AtLeast: at}
	case 5:
		return &skeinv1.ListFollowingRequest{UserId: user(), PageSize: size, AtLeast: at}
	case 6:
		return &skeinv1.ListFollowersRequest{UserId: user(), PageSize: size, AtLeast: at}
	case 7:
		return &skeinv1.ListBoardFollowersRequest{Board: board(), PageSize: size, AtLeast: at}
	case 8:
		return &skeinv1.ListFollowedBoardsRequest{UserId: user(), PageSize: size, AtLeast: at}
	case 9:
		return &skeinv1.ListBoardsRequest{UserId: user(), PageSize: size, AtLeast: at}
	case 10:
		return &skeinv1.ListBlockedRequest{UserId: user(), PageSize: size, AtLeast: at}
	case 11:
		return &skeinv1.ListMutedRequest{UserId: user(), PageSize: size, AtLeast: at}
	case 12:
		return &skeinv1.ListMutualsRequest{ViewerId: user(), UserId: user(), PageSize: size, AtLeast: at}
	case 13:
		return &skeinv1.CountNewerRequest{ReaderId: user(), IncludeOwn: yes(), HideSeen: yes(), AtLeast: at}
	case 14:
		return &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: user()}, PageSize: size, AtLeast: at}
	case 15:
		return &skeinv1.BatchGetPinsRequest{Pins: []*skeinv1.Pin{pin(), pin(), pin(), pin()}, AtLeast: at}
	case 16:
		return &skeinv1.ExplainPinRequest{
			ReaderId: user(), Pin: pin(), Order: order, IncludeOwn: yes(), HideSeen: yes(), OnePerItem: yes(), AtLeast: at,
		}
	case 17:
		return &skeinv1.ListLikesRequest{UserId: user(), PageSize: size, AtLeast: at}
	case 18:
		req := &skeinv1.BatchGetViewerStateRequest{ViewerId: user(), AtLeast: at}
		for range 5 {
			req.Keys = append(req.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: pin()}},
				&skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: item()}})
		}
		return req
	case 19:
		return &skeinv1.FilterSeenRequest{UserId: user(), ItemIds: []string{item(), item(), item()}, AtLeast: at}
	case 20:
		return &skeinv1.ListServedRequest{UserId: user(), AtLeast: at}
	case 21:
		req := &skeinv1.BatchGetCountersRequest{AtLeast: at}
		for range 4 {
			req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: user()}},
				&skeinv1.CounterKey{Target: &skeinv1.CounterKey_Board{Board: board()}},
				&skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: item()}})
		}
		return req
	case 22:
		req := &skeinv1.ListTrendingRequest{PageSize: size, AtLeast: at}
		switch rng.IntN(3) {
		case 0:
			req.Scope = &skeinv1.ListTrendingRequest_OwnerId{OwnerId: user()}
		case 1:
			req.Scope = &skeinv1.ListTrendingRequest_Board{Board: board()}
		}
		return req
	}
	return &skeinv1.ReadFeedRequest{
		ReaderId: user(), PageSize: size, Order: order, IncludeOwn: yes(), HideSeen: yes(), OnePerItem: yes(), AtLeast: at,
	}
}

// field is a field of a message; nil means it has none of the name.
func field(m proto.Message, name string) protoreflect.FieldDescriptor {
	return m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
}

// pages reads all pages of a question, each from the node whose turn it is, without what differs between processes.
func pages(req proto.Message, nodes ...*world) (all []proto.Message, err error) {
	req = proto.Clone(req)
	for i := 0; ; i++ {
		res, err := nodes[i%len(nodes)].answerTo(req)
		if err != nil {
			return all, err
		}
		m, token := res.ProtoReflect(), ""
		if next := field(res, "next_page_token"); next != nil {
			token = m.Get(next).String()
		}
		for _, name := range []string{"position", "next_page_token", "newest_token"} {
			if f := field(res, name); f != nil {
				m.Clear(f)
			}
		}
		all = append(all, res)
		if token == "" || len(all) == 100 {
			return all, nil
		}
		req.ProtoReflect().Set(field(req, "page_token"), protoreflect.ValueOfString(token))
	}
}

// TestClusterAnswersAsOneProcess: whichever node is asked, and whichever pages of a session it is asked for, it answers as a process
// that holds everything, also when a node is gone.
func TestClusterAnswersAsOneProcess(t *testing.T) {
	c := newCluster(t, 3)
	rng := rand.New(rand.NewPCG(1, 2))
	var at string
	compare := func(nodes []*world, questions int) {
		t.Helper()
		for range questions {
			req := someQuestion(rng, at)
			want, err := pages(req, c.whole)
			if err != nil {
				t.Fatalf("%T %v: %v", req, req, err)
			}
			turn := rng.IntN(len(nodes))
			got, err := pages(req, slices.Concat(nodes[turn:], nodes[:turn])...)
			if err != nil {
				t.Fatalf("%T %v at node %d: %v", req, req, turn, err)
			}
			if !slices.EqualFunc(got, want, proto.Equal) {
				t.Fatalf("%T %v at node %d:\n got %v\nwant %v", req, req, turn, got, want)
			}
		}
	}
	for range 4 {
		for range 8 {
			at = c.nodes[rng.IntN(len(c.nodes))].publish(someEvents(rng, 50)...)
		}
		compare(c.nodes, 300)
	}
	c.stopPeers[1]()
	compare([]*world{c.nodes[0], c.nodes[2]}, 300)
}
