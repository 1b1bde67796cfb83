package eventlog_test

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func follow(eventID, follower, user string) *skeinv1.Event {
	return &skeinv1.Event{
		EventId: eventID, // makes a retry safe, for 15 minutes
		Kind: &skeinv1.Event_UserFollowed{
			UserFollowed: &skeinv1.UserFollowed{UserId: follower, TargetUserId: user},
		},
	}
}

// A program publishes to the log of a skein that runs elsewhere.
func ExampleDial() {
	url, stop := startServer() // yours runs already
	defer stop()

	ctx := context.Background()
	p, err := eventlog.Dial(ctx, eventlog.Config{URL: url}, eventlog.PublisherOptions{})
	if err != nil {
		panic(err)
	}
	defer p.Close(ctx)

	call := []*skeinv1.Event{follow("req-1", "alice", "bob"), follow("req-2", "carol", "carol")}
	_, refused := events.CheckCall(call)
	for _, r := range refused {
		fmt.Printf("event %d: %s\n", r.Index, r.Message)
	}
	res, err := p.Publish(ctx, call[:1], eventlog.PublishOptions{})
	if err != nil {
		panic(err) // on events.ErrOutcomeUnknown: publish again, with the same event ids
	}
	fmt.Println("accepted", len(res.EventIDs), "as", res.EventIDs[0])

	// Output:
	// event 1: user_followed.target_user_id must not be the acting user: nobody follows, blocks or mutes themselves
	// accepted 1 as req-1
}

// A log in this process: publish to it, and read what is in it.
func ExampleOpen() {
	ctx := context.Background()
	l, err := eventlog.Open(ctx, eventlog.Config{Ephemeral: true}) // or Dir: "skein-data/log"
	if err != nil {
		panic(err)
	}
	defer l.Close(ctx) // closes the publisher and the hub, too

	p, err := l.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		panic(err)
	}
	res, err := p.Publish(ctx, []*skeinv1.Event{follow("", "alice", "bob"), follow("", "carol", "bob")}, eventlog.PublishOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println("on disk at sequence", res.Position.Seq, "as", res.EventIDs)

	h := eventlog.NewHub(l, eventlog.HubOptions{})
	go func() { _ = h.Run(ctx) }()
	s, err := h.Subscribe(l.Start())
	if err != nil {
		panic(err)
	}
	defer s.Close()
	envs, err := s.Next(ctx, 1<<20)
	if err != nil {
		panic(err)
	}
	for _, ev := range envs[0].Events {
		fmt.Println(ev.Kind, ev.User, ev.Peer)
	}

	// Output:
	// on disk at sequence 1 as [1-0 1-1]
	// user_followed alice bob
	// user_followed carol bob
}
