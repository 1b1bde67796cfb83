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

// Member describes a node. The node writes all fields except Draining and LastSeen into its node
// key.
type Member struct {
	// Name is unique in the cluster. It is 1 to 64 letters, digits, - and _.
	Name string `json:"name"`
	// Addr is the host:port at which other nodes reach the node.
	Addr string `json:"addr"`
	// Zone is the failure domain of the node. The copies of a partition are in different zones if
	// there are enough zones. All nodes with an empty Zone are in one zone.
	Zone string `json:"zone,omitempty"`
	// Weight is the node's share of the partitions relative to other nodes; 0 means 1.
	Weight int `json:"weight"`
	Announcement
	// Draining says that the bucket has a drain key for this node. See [Cluster.SetDraining].
	Draining bool `json:"draining,omitempty"`
	// LastSeen is when this process received the last renewal, by its own clock.
	LastSeen time.Time `json:"-"`
}

// Announcement is the part of a Member that changes while the node runs.
type Announcement struct {
	// Serves has the partitions for which the node answers queries now, in all projections.
	Serves events.Partitions `json:"serves"`
	// State is the name of the node's state, such as "serving". It is empty if an older version of
	// skein wrote the node key, and so is PartitionChange, the name of the state in which the
	// node's change to other partitions is, such as "copying".
	State           string `json:"state,omitempty"`
	PartitionChange string `json:"change,omitempty"`
	// Position is the position in the event log of the node's slowest projection, as
	// [events.Position] writes it.
	Position string `json:"position,omitempty"`
}

// Table says which nodes should hold each partition.
type Table struct {
	// Revision increases by one with each table; 0 means that no table has been written yet.
	Revision uint64
	// Copies is how many nodes should hold each partition. There are fewer if the cluster has fewer
	// nodes.
	Copies int
	// Nodes has, per partition, the names of at most Copies nodes, the highest score of Place
	// first.
	Nodes [events.NumPartitions][]string
}

// ErrVersion is the error of a value that another version of skein wrote, which this one cannot
// read.
var ErrVersion = errors.New("placement: unknown version")

// formatVersion is the version of the format of all values in the bucket. This program reads no
// other version.
const formatVersion = 1

// The keys of the bucket. The prefixes are followed by the name of a node.
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

// drainValue is the value of a drain key. That the key exists is the message.
type drainValue struct {
	V int `json:"v"`
}

// leaseValue is the value of the lease. Counter increases by one with each renewal.
type leaseValue struct {
	V       int    `json:"v"`
	Holder  string `json:"holder"` // the instance of the controller
	Name    string `json:"name"`   // name of the controller's node, for a person who reads the value
	Counter uint64 `json:"counter"`
}

// tableValue is the value of the table's key.
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

// decodeValue decodes the value of a key. It returns [ErrVersion] for a value of another format
// version.
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

// decodeMember decodes the value of a node key. It returns an error for a value that names another
// node, because a node is known by its key.
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
	v.Draining = false // the drain key decides this, not the node
	return v, nil
}

// decodeTable decodes the value of the table's key.
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

// checkName returns an error if the name cannot be part of a key or of the bucket's name. what says
// what is named.
func checkName(what, name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("placement: the %s must be 1 to 64 letters, digits, - and _, but is %q", what, name)
	}
	return nil
}

// check returns an error that describes the first invalid field.
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
