package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	"github.com/skein-feed/skein/events"
)

// Member describes a node. The node itself sets all fields except Draining and LastSeen, and writes
// them into its node key. The process that reads the node key sets Draining and LastSeen.
type Member struct {
	// Name is unique in the cluster. It has 1 to 64 ASCII letters, digits, - and _.
	Name string `json:"name"`
	// Addr is the host:port at which other nodes reach the node.
	Addr string `json:"addr"`
	// Zone names the part of the infrastructure that may fail as a whole with the node, such as a
	// data center. Place puts the copies of a partition in different zones if there are enough
	// zones. All nodes with an empty Zone are in one zone.
	Zone string `json:"zone,omitempty"`
	// Weight is the node's share of the partitions relative to the weights of the other nodes: a
	// node with weight 2 gets about twice as many partitions as one with weight 1. 0 means 1.
	Weight int `json:"weight"`
	Announcement
	// Draining says that the bucket has a drain key for this node. See [Cluster.SetDraining]. A
	// process that reads a node key ignores the Draining in the value.
	Draining bool `json:"draining,omitempty"`
	// LastSeen is when this process read the last renewal of the node key, by its own clock. If
	// there was no renewal since Open, LastSeen is when Open read the node key. The node may have
	// written the node key long before that.
	LastSeen time.Time `json:"-"`
}

// Announcement is the part of a Member that the node changes while it runs, by [Cluster.Announce].
type Announcement struct {
	// Serves has the partitions for which other processes may query the node now. The node has
	// each of these partitions in all its projections.
	Serves events.Partitions `json:"serves"`
	// State is the name of the node's state, such as "serving". PartitionChange is the name of the
	// step that the node has reached while it changes to other partitions, such as "copying". Both
	// are empty if an older version of skein wrote the node key. PartitionChange is also empty
	// until the first Announce of a node that has just started.
	State           string `json:"state,omitempty"`
	PartitionChange string `json:"change,omitempty"`
	// Position is the position in the event log that the node's slowest projection has reached, in
	// the text form of [events.Position]. It is empty until the first Announce of a node that has
	// just started.
	Position string `json:"position,omitempty"`
}

// Table says which nodes should hold each partition.
type Table struct {
	// Revision is one more than that of the table before; 0 means that this process has not read a
	// table yet. A controller that has read no table, because the key was deleted or cannot be
	// decoded, begins at 1 again.
	Revision uint64
	// Copies is how many nodes should hold each partition. If fewer nodes have a node key and are
	// not draining, the lists in Nodes are shorter.
	Copies int
	// Nodes has, per partition, the names of at most Copies nodes, in the order in which Place
	// chose them. The first one has the highest score. The second one need not have the second
	// highest score, because Place prefers zones that have no copy of the partition yet.
	Nodes [events.NumPartitions][]string
}

// ErrVersion means that another version of skein wrote a value in a format that this version cannot
// read, or that the value has no version. No exported function returns it: the process that reads
// the value logs the error and ignores the value. See [Cluster.UnreadableKeys].
var ErrVersion = errors.New("placement: unknown version")

// formatVersion is the version of the format of all values in the bucket: the field v of each. This
// version of skein reads no other format version.
const formatVersion = 1

// The keys of the bucket. A node key is nodePrefix and the name of the node, and a drain key is
// drainPrefix and the name of the node.
const (
	nodePrefix  = "node."
	drainPrefix = "drain."
	leaseKey    = "controller"
	tableKey    = "table"
)

// memberValue is the value of a node key.
type memberValue struct {
	V        int    `json:"v"`
	Instance string `json:"instance"` // see Cluster.instance
	Member
}

// drainValue is the value of a drain key. It says nothing about the node: the node drains because
// the key exists. Only the version is checked.
type drainValue struct {
	V int `json:"v"`
}

// leaseValue is the value of the lease. Counter is one more than in the last value of the lease
// that the controller has read. Two renewals can have the same Counter, if the second one is
// written before the watch has delivered the first. No decision depends on Counter: a renewal is
// recognized by the revision of the key.
type leaseValue struct {
	V       int    `json:"v"`
	Holder  string `json:"holder"` // the instance of the controller
	Name    string `json:"name"`   // name of the controller's node, for people who read the value
	Counter uint64 `json:"counter"`
}

// tableValue is the value of the table's key. The name of Copies in JSON, replicas, is part of the
// format and differs from the name in Go.
type tableValue struct {
	V        int        `json:"v"`
	Revision uint64     `json:"revision"`
	Copies   int        `json:"replicas"`
	Nodes    [][]string `json:"nodes"` // the names per partition
}

// encodeTable encodes the value of the table's key.
func encodeTable(t *Table) ([]byte, error) {
	return json.Marshal(tableValue{V: formatVersion, Revision: t.Revision, Copies: t.Copies, Nodes: t.Nodes[:]})
}

// decodeValue decodes the value of a key. It returns an error that wraps [ErrVersion] for a value
// of another format version. It decodes the version alone first, because the other fields of
// another version may not fit T. It ignores fields that T does not have.
func decodeValue[T any](key string, data []byte) (value T, err error) {
	var head struct {
		V int `json:"v"`
	}
	if err = json.Unmarshal(data, &head); err != nil {
		return value, fmt.Errorf("placement: the value of %s is malformed: %w", key, err)
	}
	if head.V != formatVersion {
		return value, fmt.Errorf("%w: the value of %s has version %d, this program reads version %d", ErrVersion, key, head.V, formatVersion)
	}
	if err = json.Unmarshal(data, &value); err != nil {
		return value, fmt.Errorf("placement: the value of %s is malformed: %w", key, err)
	}
	return value, nil
}

// decodeMember decodes and checks the value of a node key. It returns an error if the name in the
// value differs from the name in the key, so that no process can describe one node under the key of
// another.
func decodeMember(key string, data []byte) (memberValue, error) {
	v, err := decodeValue[memberValue](key, data)
	if err != nil {
		return v, err
	}
	if err := v.check(); err != nil {
		return v, fmt.Errorf("placement: the value of %s: %w", key, err)
	}
	if nodePrefix+v.Name != key {
		return v, fmt.Errorf("placement: the value of %s is that of a node with another name, %s", key, v.Name)
	}
	v.Draining = false // only a drain key makes a node drain, whatever the node key says
	return v, nil
}

// decodeTable decodes the value of the table's key. It checks the number of partitions, but not the
// names of the nodes: a table may name nodes that the cluster does not have any more.
func decodeTable(data []byte) (t Table, err error) {
	v, err := decodeValue[tableValue](tableKey, data)
	if err != nil {
		return t, err
	}
	if len(v.Nodes) != len(t.Nodes) {
		return t, fmt.Errorf("placement: the table has %d partitions, must have %d", len(v.Nodes), len(t.Nodes))
	}
	t.Revision = v.Revision
	t.Copies = v.Copies
	copy(t.Nodes[:], v.Nodes)
	return t, nil
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// checkName returns an error if the name is not 1 to 64 of the characters that NATS allows in the
// name of a bucket. Keys may have these characters, too. what is how the error describes the name,
// such as "name of a node".
func checkName(what, name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("placement: the %s must be 1 to 64 letters, digits, - and _, but is %q", what, name)
	}
	return nil
}

// check checks the name, the address and the weight, and returns an error that describes the first
// invalid one. It accepts an address with an empty host or an empty port.
func (m *Member) check() error {
	if err := checkName("name of a node", m.Name); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(m.Addr); err != nil {
		return fmt.Errorf("placement: the address of a node must be host:port: %w", err)
	}
	if m.Weight < 0 {
		return fmt.Errorf("placement: the weight of a node must not be negative, is %d", m.Weight)
	}
	return nil
}
