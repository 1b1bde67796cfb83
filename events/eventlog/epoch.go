package eventlog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// Keys of the stream's metadata.
const (
	metaLogID = "skein-log-id" // 32 hexadecimal digits
	metaEpoch = "skein-epoch"  // decimal, from 1
	// metaPredecessors lists the earlier epochs as JSON: [{"epoch":1,"last":123}]. The stream of
	// the present epoch begins after the last of them. The key is missing in the first epoch.
	metaPredecessors = "skein-predecessors"
	// metaLastTime is the last log time that was assigned before the present epoch, in decimal
	// microseconds. It is set together with metaPredecessors.
	metaLastTime = "skein-last-time"
	// metaErased is the last erasure as EPOCH:SEQUENCE: the epoch that ended with it, and the
	// sequence of the deletion.
	metaErased = "skein-erased"
	// metaErasedPartitions lists as JSON the partitions of each projection to which events about
	// the users of the last erasure were delivered: {"epoch":1,"partitions":{"seen":"…"}}. The list
	// is valid only if its epoch is that of metaErased, because programs that do not know the key
	// leave it as it was.
	metaErasedPartitions = "skein-erased-partitions"
)

// Predecessor is an epoch of the log before the present one.
type Predecessor struct {
	Epoch uint32 `json:"epoch"`
	// Last is the highest sequence of the epoch that the log still has, in its archive. Later
	// envelopes of the epoch are lost or were replaced.
	Last uint64 `json:"last"`
}

// logMeta is the parsed metadata of the stream. All processes read it, and so learn of new epochs
// and accepted holes.
type logMeta struct {
	id    events.LogID
	epoch uint32
	// first is the sequence at which the epoch begins. lastTime is the last log time that was
	// assigned before it; times continue after it (I5).
	first    uint64
	lastTime events.Micros
	// predecessors are sorted by epoch, and their sequences do not decrease.
	predecessors []Predecessor
	// erased is the last erasure, or the zero value if there was none.
	erased Erasure
	// erasedPartitions are the partitions of the erasure in erased, by projection. Nil means that
	// they are not known.
	erasedPartitions map[string]events.Partitions
	// holes are the holes that an operator has accepted: disjoint and in ascending order.
	holes []SeqRange
}

// Erasure is the last erasure from a log. The zero value means that there was none.
type Erasure struct {
	// Epoch is the epoch that ended with the erasure. Of that epoch and the earlier ones, the log
	// has only the scrubbed envelopes. Seq is the sequence of the deletion; everything up to it was
	// scrubbed.
	Epoch uint32
	Seq   uint64
}

// LastErasure returns the last erasure. A restored log may know only that its last epoch was lost,
// and not how the epochs before ended. For such a log, LastErasure returns the epoch before the
// lost one, with the epoch's last sequence, because that epoch may have ended with an erasure.
func (l *Log) LastErasure() Erasure { return l.meta().erased }

// ErasedPartitions returns, by projection, the partitions to which events about the users of the
// last erasure were delivered. It returns nil if that is not known. Rows of other partitions are
// the same after the erasure as before.
func (l *Log) ErasedPartitions() map[string]events.Partitions { return l.meta().erasedPartitions }

// String returns EPOCH:SEQUENCE, the format of the stream's metadata.
func (e Erasure) String() string { return fmt.Sprintf("%d:%d", e.Epoch, e.Seq) }

// parseErased parses EPOCH:SEQUENCE. The empty string is the zero value.
func parseErased(text string) (e Erasure, err error) {
	if text == "" {
		return e, nil
	}
	// Sscanf also accepts spaces, signs and whatever follows, so the result is formatted again.
	n, err := fmt.Sscanf(text, "%d:%d", &e.Epoch, &e.Seq)
	if err != nil || n != 2 || e.String() != text {
		return e, fmt.Errorf("metadata %s is %q, must be an epoch and a sequence", metaErased, text)
	}
	return e, nil
}

// erasedPartitionsMeta is the content of metaErasedPartitions.
type erasedPartitionsMeta struct {
	Epoch      uint32                       `json:"epoch"`
	Partitions map[string]events.Partitions `json:"partitions"`
}

// parseErasedPartitions returns the partitions of the erasure that ended the epoch. It returns nil
// if the text is empty or about another epoch.
func parseErasedPartitions(text string, epoch uint32) (map[string]events.Partitions, error) {
	if text == "" {
		return nil, nil
	}
	var meta erasedPartitionsMeta
	if err := json.Unmarshal([]byte(text), &meta); err != nil {
		return nil, fmt.Errorf("metadata %s is malformed: %w", metaErasedPartitions, err)
	}
	if meta.Epoch != epoch {
		return nil, nil // a program that does not know the key has ended a later epoch
	}
	return meta.Partitions, nil
}

// parseMeta parses the metadata of the stream.
func parseMeta(m map[string]string) (logMeta, error) {
	meta := logMeta{first: 1}
	id, err := hex.DecodeString(m[metaLogID])
	if err != nil || len(id) != len(meta.id) {
		return meta, fmt.Errorf("metadata %s is %q, must be 32 hexadecimal digits", metaLogID, m[metaLogID])
	}
	copy(meta.id[:], id)

	epoch, err := strconv.ParseUint(m[metaEpoch], 10, 32)
	if err != nil || epoch == 0 {
		return meta, fmt.Errorf("metadata %s is %q, must be a number from 1", metaEpoch, m[metaEpoch])
	}
	meta.epoch = uint32(epoch)

	if meta.holes, err = parseHoles(m[metaHoles]); err != nil {
		return meta, err
	}
	if meta.erased, err = parseErased(m[metaErased]); err != nil {
		return meta, err
	}

	if meta.erasedPartitions, err = parseErasedPartitions(m[metaErasedPartitions], meta.erased.Epoch); err != nil {
		return meta, err
	}

	list := m[metaPredecessors]
	if list == "" {
		return meta, nil // the log is in its first epoch
	}
	if err := json.Unmarshal([]byte(list), &meta.predecessors); err != nil {
		return meta, fmt.Errorf("metadata %s is malformed: %w", metaPredecessors, err)
	}
	if err := checkPredecessors(meta.epoch, meta.predecessors); err != nil {
		return meta, fmt.Errorf("metadata %s is %s: %w", metaPredecessors, list, err)
	}

	last, err := strconv.ParseInt(m[metaLastTime], 10, 64)
	if err != nil || last < 0 {
		return meta, fmt.Errorf("metadata %s is %q, must be a time in microseconds", metaLastTime, m[metaLastTime])
	}
	meta.first = meta.predecessors[len(meta.predecessors)-1].Last + 1
	meta.lastTime = events.Micros(last)
	return meta, nil
}

// checkPredecessors returns an error if no log in the given epoch can have this list of
// predecessors.
func checkPredecessors(epoch uint32, list []Predecessor) error {
	if len(list) == 0 {
		return errors.New("an epoch that replaces others names them")
	}
	var before Predecessor
	for _, p := range list {
		// Two epochs may end at the same sequence, if the second one got no envelope.
		if p.Epoch <= before.Epoch || p.Epoch >= epoch || p.Last < before.Last {
			return fmt.Errorf("epochs must rise from 1 to below %d, and sequences not fall", epoch)
		}
		before = p
	}
	return nil
}

// isContinuedFrom reports whether the present epoch has the same envelope at the sequence as the
// given epoch had. It does not check whether the log reaches the sequence.
func (m logMeta) isContinuedFrom(epoch uint32, seq uint64) bool {
	if epoch == m.epoch {
		return true
	}
	for _, p := range m.predecessors {
		if p.Epoch == epoch {
			return seq <= p.Last
		}
	}
	return false
}

// otherEpoch returns the [events.ErrOtherEpoch] for a cursor or a position that isContinuedFrom
// does not accept. what is "cursor" or "position".
func (m logMeta) otherEpoch(what string, epoch uint32, seq uint64) error {
	for _, p := range m.predecessors {
		if p.Epoch == epoch {
			return fmt.Errorf("%w: the %s is at sequence %d of epoch %d, of which the log has only what is up to %d: "+
				"epoch %d went on from there with other events", events.ErrOtherEpoch, what, seq, epoch, p.Last, m.epoch)
		}
	}
	return fmt.Errorf("%w: the %s is of epoch %d, the log is in %d, which does not come from it", events.ErrOtherEpoch,
		what, epoch, m.epoch)
}

// AdoptCursor returns the cursor in the form that the present epoch uses. A cursor of an earlier
// epoch becomes a cursor of the archive, without checksum and warm-up start, if the log still has
// its sequence. Otherwise AdoptCursor fails with [events.ErrOtherEpoch], and for a cursor of
// another log with [events.ErrOtherLog].
func (l *Log) AdoptCursor(c events.Cursor) (events.Cursor, error) {
	if c.Log != l.meta().id {
		return c, fmt.Errorf("%w: the cursor is of log %x, this is %x: connect to the right server or data directory, "+
			"or start anew with an empty store", events.ErrOtherLog, c.Log, l.meta().id)
	}
	if !l.meta().isContinuedFrom(c.Epoch, c.Seq) {
		return c, fmt.Errorf("%w: rebuild the store", l.meta().otherEpoch("cursor", c.Epoch, c.Seq))
	}
	// A cursor of an earlier epoch loses its checksum and warm-up start: the stream of the present
	// epoch has no message at the cursor, and the archive has no checksums.
	if c.Epoch != l.meta().epoch {
		c = events.Cursor{Log: c.Log, Epoch: l.meta().epoch, Seq: c.Seq, LastTime: c.LastTime}
	}
	return c, nil
}

// Predecessors returns the epochs before the present one, oldest first.
func (l *Log) Predecessors() []Predecessor {
	return append([]Predecessor(nil), l.meta().predecessors...)
}

// EpochStart returns the cursor after which the present epoch begins. In a log that was never
// restored, moved or scrubbed, that is [Log.Start].
func (l *Log) EpochStart() events.Cursor { return l.meta().epochStart() }

// epochStart returns the cursor after which the epoch begins.
func (m *logMeta) epochStart() events.Cursor {
	return events.Cursor{Log: m.id, Epoch: m.epoch, Seq: m.first - 1, LastTime: m.lastTime}
}

// RestoredState describes a log that continues in a new epoch.
type RestoredState struct {
	// ID is the id of the log.
	ID events.LogID
	// Epoch is the new epoch. It is higher than any epoch that the log has had.
	Epoch uint32
	// Predecessors are the earlier epochs whose cursors, positions and page tokens stay valid,
	// oldest first. The Last of the last one is Head.Seq.
	Predecessors []Predecessor
	// Head is the cursor after the last envelope of the archive. The next envelope of the log has
	// the next sequence, and later times.
	Head events.Cursor
	// LastErasure is the last erasure. The zero value means that the last erasure is not known.
	LastErasure Erasure
}

// lastErasure returns the last erasure. If it is not known, lastErasure returns the end of the last
// epoch but one: every epoch except the last, which was lost, may have ended with an erasure.
func (r RestoredState) lastErasure() Erasure {
	if n := len(r.Predecessors); r.LastErasure == (Erasure{}) && n > 1 {
		return Erasure{r.Predecessors[n-2].Epoch, r.Predecessors[n-2].Last}
	}
	return r.LastErasure
}

// validate returns an error if no log can continue this way.
func (r RestoredState) validate() error {
	if err := checkPredecessors(r.Epoch, r.Predecessors); err != nil {
		return fmt.Errorf("eventlog: restore epoch %d: %w", r.Epoch, err)
	}
	last := r.Predecessors[len(r.Predecessors)-1]
	switch {
	case r.ID == events.LogID{}, r.Head.Log != r.ID:
		return fmt.Errorf("eventlog: restore log %x: the head is of log %x", r.ID, r.Head.Log)
	case last.Last != r.Head.Seq:
		return fmt.Errorf("eventlog: restore epoch %d: its predecessor ends at sequence %d, the head is %d", r.Epoch,
			last.Last, r.Head.Seq)
	case r.Head.LastTime < 0:
		return fmt.Errorf("eventlog: restore epoch %d: the last time of the head is negative", r.Epoch)
	}
	return nil
}

// streamMetadata returns the metadata of the stream of the new epoch.
func (r RestoredState) streamMetadata() (map[string]string, error) {
	list, err := json.Marshal(r.Predecessors)
	if err != nil {
		return nil, fmt.Errorf("eventlog: %w", err)
	}
	m := map[string]string{
		metaLogID:        hex.EncodeToString(r.ID[:]),
		metaEpoch:        strconv.FormatUint(uint64(r.Epoch), 10),
		metaPredecessors: string(list),
		metaLastTime:     strconv.FormatInt(int64(r.Head.LastTime), 10),
	}
	if erased := r.lastErasure(); erased != (Erasure{}) {
		m[metaErased] = erased.String()
	}
	return m, nil
}

// Restore creates the empty stream of a log that continues in a new epoch after its archive. The
// stream begins at the sequence after the head. If the server already has a stream, Restore leaves
// it alone and fails with [events.ErrLogExists].
func Restore(ctx context.Context, cfg Config, r RestoredState) (err error) {
	if err := errors.Join(r.validate(), cfg.validate()); err != nil {
		return err
	}

	l := newLog(cfg)
	defer func() { err = errors.Join(err, l.disconnect(context.WithoutCancel(ctx))) }()
	if err := l.connect(ctx); err != nil {
		return err
	}
	l.restoreSpec = &r
	return l.openStream(ctx, true)
}

// checkNoOtherLog returns [events.ErrLogExists] if the server already has a stream that this call
// has not created. NATS does not fail when an identical stream is created a second time, so the
// package must check.
func (l *Log) checkNoOtherLog(ctx context.Context) error {
	stream, err := l.conn.js.Stream(ctx, StreamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return explainStreamError(err)
	}
	meta, err := parseMeta(stream.CachedInfo().Config.Metadata)
	if err != nil {
		return fmt.Errorf("%w: stream %s: %w", events.ErrLogExists, StreamName, err)
	}

	spec := l.restoreSpec
	isRequested := meta.id == spec.ID && meta.epoch == spec.Epoch && meta.first == spec.Head.Seq+1
	if l.createSent && isRequested {
		// An earlier request of this call has created the stream, and its answer was lost.
		return nil
	}
	return fmt.Errorf("%w: stream %s holds log %x in epoch %d: move it away, or restore elsewhere", events.ErrLogExists,
		StreamName, meta.id, meta.epoch)
}
