package request

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func newBoard(owner, id string) *skeinv1.Board { return &skeinv1.Board{OwnerId: owner, BoardId: id} }

// newUserPair returns a pair whose target is a user.
func newUserPair(follower, user string) *skeinv1.FollowPair {
	return &skeinv1.FollowPair{UserId: follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: user}}
}

// newFollow returns the event that a follower follows a user.
func newFollow(follower, user string) *skeinv1.Event {
	fact := &skeinv1.UserFollowed{UserId: follower, TargetUserId: user}
	return &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: fact}}
}

// newServed returns the event that items were served to a user.
func newServed(user string, items ...string) *skeinv1.Event {
	fact := &skeinv1.Served{UserId: user, ItemIds: items}
	return &skeinv1.Event{Kind: &skeinv1.Event_Served{Served: fact}}
}

// apiServices returns the services of the API.
func apiServices() (all []protoreflect.ServiceDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("skein.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
		return true
	})
	return all
}
