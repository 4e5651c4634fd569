package plan

import (
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Setup says which cluster a report is of, and which options have shaped it.
type Setup struct {
	// Server is the address of the cluster, and Context is Options.Context.
	Server  string `json:"server,omitempty"`
	Context string `json:"context,omitempty"`
	// World is still or healthy.
	World string `json:"world,omitempty"`
	// Admission, Account and Rules are those of [Options]; Rules is whether there are any.
	Admission bool   `json:"admission,omitempty"`
	Account   string `json:"account,omitempty"`
	Rules     bool   `json:"rules,omitempty"`
	// Isolated is that of [Command].
	Isolated bool `json:"isolated,omitempty"`
	// Quiet is how long the program had to do nothing new, and Timeout how long it could run. Zero: that was up to the
	// caller of Settle.
	Quiet   metav1.Duration `json:"quiet,omitzero"`
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

// setupOf is the setup of a fork of the cluster at an address, which is shown without a user: the name of one may be a
// token.
func setupOf(host *url.URL, o Options) Setup {
	at := *host
	at.User = nil
	return Setup{Server: strings.TrimSuffix(at.String(), "/"), Context: o.Context, World: o.World.String(),
		Admission: o.Admission, Account: o.Account, Rules: o.Rules != nil}
}

// doubt says why the changes of another setup may not be compared with those of this one: it is of another cluster, or
// has options that find other changes. What the cluster is called, and how long the programs could run, does not count.
func (s Setup) doubt(other Setup) string {
	if s.Server != other.Server {
		return "it is of another cluster"
	}
	s.Context, s.Quiet, s.Timeout = other.Context, other.Quiet, other.Timeout
	if s != other {
		return "it has other options"
	}
	return ""
}

// String names the cluster and the options in one line.
func (s Setup) String() string {
	var b strings.Builder
	b.WriteString(s.Server)
	if s.Context != "" {
		b.WriteString(", context " + s.Context)
	}
	for _, one := range []struct {
		says string
		is   bool
	}{
		{s.World + " world", s.World != ""}, {"admission by dry runs", s.Admission},
		{"rights of " + s.Account, s.Account != ""}, {"rules in CEL", s.Rules}, {"isolated", s.Isolated},
		{"done after " + s.Quiet.Duration.String() + " of quiet", s.Quiet.Duration > 0},
		{"ended after " + s.Timeout.Duration.String(), s.Timeout.Duration > 0},
	} {
		if one.is {
			b.WriteString("; " + one.says)
		}
	}
	return b.String()
}
