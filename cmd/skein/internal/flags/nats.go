package flags

import (
	"github.com/skein-feed/skein/events/eventlog"
)

// NATSFlags name the NATS servers that have the log.
type NATSFlags struct {
	NATS         string `name:"nats" help:"Keep the log on these NATS servers, which must run with sync_interval: always." placeholder:"URL,..."`
	NATSCreds    string `name:"nats-creds" help:"Credentials file for --nats." type:"path" placeholder:"FILE"`
	NATSCert     string `name:"nats-cert" help:"Client certificate for --nats, PEM." type:"path" placeholder:"FILE"`
	NATSKey      string `name:"nats-key" help:"Key of the client certificate, PEM." type:"path" placeholder:"FILE"`
	NATSCA       string `name:"nats-ca" help:"Authorities that sign the servers' certificates, PEM." type:"path" placeholder:"FILE"`
	NATSInbox    string `name:"nats-inbox" help:"Prefix of the subjects on which the servers answer; by default _INBOX." placeholder:"PREFIX"`
	NATSReplicas int    `name:"nats-replicas" help:"How many servers store each message of a new log; 0 means 3 if there are as many servers, else 1." default:"0"`
}

// Config returns the configuration of the log. dir is the directory of the log if there are no
// external servers.
func (f *NATSFlags) Config(dir string) eventlog.Config {
	c := eventlog.Config{
		URL: f.NATS, CredsFile: f.NATSCreds, InboxPrefix: f.NATSInbox, Replicas: f.NATSReplicas,
		TLS: eventlog.TLSFiles{CertFile: f.NATSCert, KeyFile: f.NATSKey, CAFile: f.NATSCA},
	}
	if f.NATS == "" {
		c.Dir = dir
	}
	return c
}
