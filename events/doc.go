// Package events says what a fact of skein is: its kinds, its fields and their limits, its encoding, its time, and when it is a
// repeat of one before. It is the pure half of the log: it knows neither network nor clock nor disk, so that every reader of the same
// bytes gets the same events. Package eventlog moves the bytes; packages archive and bucket keep them.
//
//	a call ──▶ CheckCall ──▶ eventlog.Publisher ──▶ the log: sequence, timestamp, bytes
//	           what is refused is named                      │
//	                                                         ▼
//	           *Envelope, shared and never changed ◀── Decoder: checks again, gives times, drops repeats
//
// [CheckCall] and [FromProto] check a message and make it an [Event], [EncodeCall] and [JoinCalls] encode, and [Decoder] returns a
// function of the messages that it is fed. What all of them must know of a kind is its row in kindTable.
//
// # One reader's rules, for every fold alike
//
// A message of the log is an envelope: a skein.v1.EventBatch of 1 to [MaxEnvelopeEvents] events and at most
// [MaxEnvelopeBytes] bytes. Other programs may append one too, so the decoder trusts nothing about it.
//
//   - An envelope that is no message, has a later version or exceeds a bound has no events and takes no time. It
//     leaves one [Reject] with Slot -1, and the cursor moves on.
//   - An event that [Validate] refuses leaves one [Reject]. It keeps its slot and so its microsecond, and it
//     registers no event id.
//   - A good event whose acting user, kind and event id occurred within the [Horizon] is counted in
//     [Envelope.Repeats] and dropped.
//   - The rest are [Envelope.Events].
//
// # Invariants
//
// I5, order, not clocks: the time of slot i of an envelope is max(timestamp of the message in the stream, last time
// given + 1 µs) + i µs. The last time given is in the [Cursor], so times never repeat or run back, whatever the
// wall clock does and wherever a reader starts. Only a backfill brings a time of its own, cut to its log time.
// Held by [Decoder].
//
// I6, idempotent: an event is dropped if the same (acting user, kind, event id) occurs within the horizon of 15
// minutes of log time before it, itself dropped or not; one that says something else than every such event is moreover kept among
// the rejects (EVENT_ID_REUSED). The decoder keeps two 64-bit hashes of each in memory, of the key and of that with what
// was said, and stores nothing:
// the cursor names an envelope (WarmSeq) from which a new decoder reads again before it continues. Each cursor of the stream is a
// function of the log alone, and at the position where it was taken the new decoder must arrive at the same one, or
// the log was rewritten ([ErrRewritten]). Held by [Decoder].
//
// I11, bad input does not stop a reader: what [Validate] refuses at the gateway, the decoder refuses on reading, with the same
// words. Held by [Validate], of which the decoder's fast path is only a shortcut to yes.
package events
