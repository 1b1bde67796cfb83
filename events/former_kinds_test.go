package events

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestFormerKindsAreReadAsTheirReplacements demands that an envelope with repins_hidden and
// repins_shown, which an older version has written, is read as follow_settings_set, both live
// events and backfills.
func TestFormerKindsAreReadAsTheirReplacements(t *testing.T) {
	data, err := hex.DecodeString(readGolden(t, "envelope-former-kinds.hex"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewDecoder(Cursor{}).Decode(1, 1_700_000_000_000_000, data)
	if err != nil || len(got.Rejects) != 0 || got.Kinds != Kinds(FollowSettingsSet) {
		t.Fatalf("Decode: got %+v and error %v, want only events of %v", got, err, FollowSettingsSet)
	}

	past := time.Date(2019, 5, 17, 8, 30, 0, 123_456_000, time.UTC)
	want := []Event{
		{
			Kind: FollowSettingsSet, Seq: 1, Time: 1_700_000_000_000_000, ID: "req-21", User: "ann", Peer: "bob",
			Settings: SettingHideRepins,
		},
		{Kind: FollowSettingsSet, Seq: 1, Slot: 1, Time: 1_700_000_000_000_001, ID: "req-22", User: "ann", Peer: "bob"},
		{
			Kind: FollowSettingsSet, Backfill: true, Seq: 1, Slot: 2, Time: Micros(past.UnixMicro()), Source: "old-redis", Offset: 22,
			ID: "old-21", User: "ann", Peer: "bob", Settings: SettingHideRepins,
		},
	}
	if diff := cmp.Diff(want, got.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestFormerKindsAreCheckedLikeOthers demands that a malformed event of a former kind is rejected, and
// that an envelope cannot be decoded if the content of such an event is not a message.
func TestFormerKindsAreCheckedLikeOthers(t *testing.T) {
	formerEvent := func(content []byte) []byte {
		event := protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(formerRepinsHidden), protowire.BytesType), content)
		return protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), event)
	}

	selfRelation, err := proto.Marshal(&skeinv1.FollowSettingsSet{UserId: "ann", TargetUserId: "ann"})
	if err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		content    []byte
		wantReason skeinv1.Reason
	}{
		"settings for oneself": {selfRelation, skeinv1.Reason_REASON_SELF_RELATION},
		"empty":                {nil, skeinv1.Reason_REASON_INVALID_FIELD},
		"no message":           {[]byte{0xff}, undecodableEnvelope().Reason},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NewDecoder(Cursor{}).Decode(1, 1_700_000_000_000_000, formerEvent(test.content))
			if err != nil || len(got.Events) != 0 || len(got.Rejects) != 1 {
				t.Fatalf("Decode: got %+v and error %v, want only one reject", got, err)
			}
			if reason := got.Rejects[0].Rejection.Reason; reason != test.wantReason {
				t.Errorf("reason of the reject: got %v, want %v", reason, test.wantReason)
			}
		})
	}
}

// TestFormerKindsCannotBePublished demands that only readers of the log know the former kinds.
func TestFormerKindsCannotBePublished(t *testing.T) {
	data := protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(formerRepinsHidden), protowire.BytesType), nil)
	msg := &skeinv1.Event{}
	if err := proto.Unmarshal(data, msg); err != nil {
		t.Fatal(err)
	}
	const want = skeinv1.Reason_REASON_UNKNOWN_KIND
	if r := Validate(msg); r == nil || r.Reason != want {
		t.Errorf("Validate: got rejection %v, want one with %v", r, want)
	}
}
