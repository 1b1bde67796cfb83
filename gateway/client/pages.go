package client

import (
	"context"
	"fmt"
	"iter"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Method is a method of a generated client, such as c.Graph.ListFollowers.
type Method[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// message is a pointer to a generated message.
type message[T any] interface {
	*T
	proto.Message
}

// page is an answer that is one page of a list.
type page[Res any] interface {
	*Res
	GetNextPageToken() string
}

// Pages iterates over the pages of a list. It requests each page when the caller asks for it:
//
//	for page, err := range client.Pages(ctx, c.Graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "ann"}) {
//
// It begins at the page_token of the request, and does not change the request. It ends after the
// first error.
func Pages[Req, Res any, In message[Req], Out page[Res]](ctx context.Context, method Method[Req, Res], req In) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		next, _ := proto.Clone(req).(In)
		tokenField := next.ProtoReflect().Descriptor().Fields().ByName("page_token")
		if tokenField == nil {
			yield(nil, fmt.Errorf("client: %T has no field page_token, so its method does not return pages", req))
			return
		}
		for {
			res, err := method(ctx, connect.NewRequest((*Req)(next)))
			if err != nil {
				yield(nil, err)
				return
			}
			page := Out(res.Msg)
			if !yield(page, nil) || page.GetNextPageToken() == "" {
				return
			}
			next.ProtoReflect().Set(tokenField, protoreflect.ValueOfString(page.GetNextPageToken()))
		}
	}
}

// Each iterates over the entries of a list. It requests page after page. entries returns the
// entries of a page:
//
//	req := &skeinv1.ReadFeedRequest{ReaderId: "ann"}
//	for entry, err := range client.Each(ctx, c.Feed.ReadFeed, req, (*skeinv1.ReadFeedResponse).GetEntries) {
//
// It ends after the first error.
func Each[Req, Res, Entry any, In message[Req], Out page[Res]](
	ctx context.Context, method Method[Req, Res], req In, entries func(Out) []Entry,
) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for page, err := range Pages[Req, Res, In, Out](ctx, method, req) {
			if err != nil {
				var none Entry
				yield(none, err)
				return
			}
			for _, entry := range entries(page) {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}
