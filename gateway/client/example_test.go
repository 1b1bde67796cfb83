package client_test

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/client"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// follow returns the event that a follower follows a user.
func follow(follower, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{
		UserFollowed: &skeinv1.UserFollowed{UserId: follower, TargetUserId: user},
	}}
}

// Publish facts, then ask about them with the position that Publish returned.
func Example() {
	url, stop := startService()
	defer stop()
	ctx := context.Background()

	c, err := client.Dial(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	published, err := c.Events.Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "bob"), follow("cid", "bob")},
	}))
	if err != nil {
		fmt.Println(err)
		return
	}

	followers, err := c.Graph.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{
		UserId: "bob", AtLeast: published.Msg.GetPosition(),
	}))
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, e := range followers.Msg.GetEntries() {
		fmt.Println(e.GetUserId(), e.GetKind())
	}
	// Output:
	// cid FOLLOW_KIND_EXPLICIT
	// ann FOLLOW_KIND_EXPLICIT
}

// With a session, every read sees what was written before it. The caller handles no positions.
func ExampleSession() {
	url, stop := startService()
	defer stop()
	ctx := context.Background()

	session := new(client.Session)
	c, err := client.Dial(url, client.Options{
		Connect: []connect.ClientOption{connect.WithInterceptors(session)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	for i := range 3 {
		_, err := c.Events.Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{follow(fmt.Sprint("fan", i), "bob")},
		}))
		if err != nil {
			fmt.Println(err)
			return
		}

		counts, err := c.Graph.BatchGetFollowCounts(ctx, connect.NewRequest(&skeinv1.BatchGetFollowCountsRequest{
			UserIds: []string{"bob"},
		}))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(counts.Msg.GetUsers()[0].GetFollowerCount())
	}
	// Output:
	// 1
	// 2
	// 3
}

// Errors carry a reason for programs, and the fields at fault.
func ExampleReason() {
	url, stop := startService()
	defer stop()

	c, err := client.Dial(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	_, err = c.Events.Publish(context.Background(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "bob"), follow("ann", "ann")},
	}))
	fmt.Println(connect.CodeOf(err), client.Reason(err))
	for _, v := range client.Violations(err) {
		fmt.Println(v.GetField())
	}
	// Output:
	// invalid_argument SELF_RELATION
	// events[1].user_followed.target_user_id
}
