package plan

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"time"
)

// Report says what a program has done on a fork. [Report.Write] writes it in each format, and encoding/json reads it
// again. It holds values of objects, but none of Secrets.
type Report struct {
	// Program is the name of the program, without its arguments; empty if it is a function.
	Program string `json:"program,omitempty"`
	// Made is when the report was made.
	Made time.Time `json:"made,omitzero"`
	// Setup is the cluster that the report is of, and the options that have shaped it.
	Setup Setup `json:"setup,omitzero"`
	// Settled: the program had stopped to change anything when the report was made. If not, more may follow.
	Settled bool `json:"settled"`
	// Changes are what the program has changed, and what the garbage collector has deleted after it: by waves, and in
	// each in the order of kinds, namespaces and names.
	Changes []Change `json:"changes"`
	// Unlisted is what the controllers of a cluster make of new objects, such as the EndpointSlices of Services. It is
	// not among the changes.
	Unlisted []string `json:"unlisted,omitempty"`
	// Refused are the requests that were refused, other than by conflicts and for objects that do not exist.
	Refused []Refusal `json:"refused,omitempty"`
	// HotLoops are objects that the program has written again and again.
	HotLoops []HotLoop `json:"hotLoops,omitempty"`
	// Approximate says where the cluster may do otherwise than the fork.
	Approximate []Approximation `json:"approximate,omitempty"`
	// Missing are the rights that the plan would have needed in the cluster: to read and, for dry runs, to write.
	Missing []Right `json:"missing,omitempty"`
	// Unserved are resources that the program asked for and that the cluster does not have.
	Unserved []string `json:"unserved,omitempty"`
	// Elsewhere are addresses other than the fork's that a process was connected to by TCP. What it did there is not
	// known. Connections of the process and those that it starts are looked for some times a second, and short ones are
	// missed.
	Elsewhere []string `json:"elsewhere,omitempty"`
	// ElsewhereUnknown says why nobody has looked for such connections; empty: somebody has, or the program could reach
	// nothing but the fork.
	ElsewhereUnknown string `json:"elsewhereUnknown,omitempty"`
	// Events is how many Events the program has recorded. They, and its Lease, are no changes.
	Events int `json:"events,omitempty"`

	// Of a comparison: see [Report.Without].

	// Anyway are the changes that the other report has as well, and NoLonger those that it alone has.
	Anyway   []Change `json:"anyway,omitempty"`
	NoLonger []Change `json:"noLonger,omitempty"`
	// OtherSetup is the other report's Setup. OtherDoubt is its Doubt, or says that it is of another cluster or has
	// other options: what it lacks for that seems to be new here.
	OtherSetup *Setup `json:"otherSetup,omitempty"`
	OtherDoubt string `json:"otherDoubt,omitempty"`
}

// Change is what was written to an object in one wave.
type Change struct {
	// Wave counts from 1: what the program wrote until it waited for something.
	Wave int `json:"wave"`
	// Verb is create, update, delete or, for an object that was deleted before and has waited for finalizers, remove.
	Verb   string `json:"verb"`
	Object Object `json:"object"`
	// NameInvented: the name is, or has in it, one that the fork has drawn, and the cluster will draw another one.
	NameInvented bool `json:"nameInvented,omitempty"`
	// Invented are the drawn values in the name and the fields, with what stands for each in a comparison: "web-*" for
	// the generated name web-x7x8k, and "*" for an address.
	Invented map[string]string `json:"invented,omitempty"`
	// Subresource is status or empty.
	Subresource string `json:"subresource,omitempty"`
	// By is the field manager, or the garbage collector of the fork.
	By string `json:"by,omitempty"`
	// Writes is how many writes there were. Fields are what they have changed together; none, if the last one has
	// undone the others.
	Writes int     `json:"writes"`
	Fields []Field `json:"fields,omitempty"`
	// Waits are the finalizers that a deleted object waits for.
	Waits []string `json:"waits,omitempty"`
	// LosesData: the deletion of such an object loses what it holds, or a StatefulSet deletes claims as it shrinks: see
	// the documentation of the package.
	LosesData bool `json:"losesData,omitempty"`
	// Restarts says which pods the change ends or replaces; nil: none.
	Restarts *Restarts `json:"restarts,omitempty"`
}

// Restarts are pods that a change ends or replaces.
type Restarts struct {
	Pods int `json:"pods"`
	// Why are the fields of the pod template that are different, or spec.replicas if fewer pods are wanted. Empty: the
	// pod itself is deleted.
	Why []string `json:"why,omitempty"`
	// When says what has to happen first; empty: nothing, the controller of the object begins at once.
	When string `json:"when,omitempty"`
}

// Object names an object. Kind is the name of its resource where the kind is not known.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
}

func (o Object) String() string {
	switch {
	case o.Namespace != "":
		return o.Kind + " " + o.Namespace + "/" + o.Name
	case o.Name != "":
		return o.Kind + " " + o.Name
	}
	return o.Kind
}

func (o Object) compare(other Object) int {
	return cmp.Or(cmp.Compare(o.APIVersion, other.APIVersion), cmp.Compare(o.Kind, other.Kind),
		cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Name, other.Name))
}

// Refusal is a request that the fork has refused, and how often. The message is left out where it may hold a value of a
// Secret.
type Refusal struct {
	Verb        string `json:"verb"`
	Object      Object `json:"object"`
	Subresource string `json:"subresource,omitempty"`
	Code        int32  `json:"code"`
	Reason      string `json:"reason,omitempty"`
	Message     string `json:"message,omitempty"`
	Times       int    `json:"times"`
}

// HotLoop is an object, or its status, that was written again and again.
type HotLoop struct {
	Object Object `json:"object"`
	// Subresource is status or empty.
	Subresource string `json:"subresource,omitempty"`
	// Writes is how often it was written, and Changes how many of the writes have changed anything.
	Writes  int     `json:"writes"`
	Changes int     `json:"changes"`
	Seconds float64 `json:"seconds"` // from the first write to the last
	// Fields are those that the last change was of.
	Fields []string `json:"fields,omitempty"`
}

// Approximation is a reason why the cluster may do otherwise than the fork, and for how many requests.
type Approximation struct {
	Resource string `json:"resource"`
	Group    string `json:"group,omitempty"`
	Why      string `json:"why"`
	Times    int    `json:"times"`
}

// Right is a right in the cluster.
type Right struct {
	Verb      string `json:"verb"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"` // empty: in all
}

func (r Right) compare(other Right) int {
	return cmp.Or(cmp.Compare(r.Group, other.Group), cmp.Compare(r.Resource, other.Resource),
		cmp.Compare(r.Verb, other.Verb), cmp.Compare(r.Namespace, other.Namespace))
}

// Without returns the report with the changes that another one has as well, in whatever wave, set apart as Anyway: what
// a new version of a program changes, if the other report is that of the version that runs now, and what that would
// change anyway. Times do not count: conditions have those of the run.
func (r *Report) Without(other *Report) (*Report, error) {
	rest := *r
	rest.Changes, rest.Anyway, rest.NoLonger, rest.OtherDoubt = nil, nil, nil, other.Doubt()
	rest.OtherSetup = &other.Setup
	rest.OtherDoubt = cmp.Or(rest.OtherDoubt, r.Setup.doubt(other.Setup))
	ours, err := identities(r.Changes)
	if err != nil {
		return nil, err
	}
	theirs, err := identities(other.Changes)
	if err != nil {
		return nil, err
	}
	known, left := theirs.count(), ours.count()
	for i, c := range r.Changes {
		if known[ours[i]]--; known[ours[i]] >= 0 {
			rest.Anyway = append(rest.Anyway, c)
		} else {
			rest.Changes = append(rest.Changes, c)
		}
	}
	for i, c := range other.Changes {
		if left[theirs[i]]--; left[theirs[i]] < 0 {
			rest.NoLonger = append(rest.NoLonger, c)
		}
	}
	return &rest, nil
}

// identified are changes by what is the same in two reports of the same change.
type identified []string

func (all identified) count() map[string]int {
	n := make(map[string]int, len(all))
	for _, is := range all {
		n[is]++
	}
	return n
}

func identities(all []Change) (found identified, err error) {
	for _, c := range all {
		is, err := c.identity()
		if err != nil {
			return nil, err
		}
		found = append(found, is)
	}
	return found, nil
}

// identity leaves out what the fork has drawn, and times.
func (c Change) identity() (string, error) {
	c = c.withoutInvented()
	c.Wave, c.By, c.Writes, c.NameInvented, c.Invented = 0, "", 0, false, nil
	data, err := json.Marshal(c)
	return moments.ReplaceAllString(string(data), `"(a time)"`), err
}

// moments are times, such as those of conditions.
var moments = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"`)

// Pods returns how many pods the changes end or replace at once. A pod that two waves replace counts twice.
func (r *Report) Pods() (n int) {
	for _, c := range r.Changes {
		if c.Restarts != nil && c.Restarts.When == "" {
			n += c.Restarts.Pods
		}
	}
	return n
}

// Losses returns how many changes lose data.
func (r *Report) Losses() (n int) {
	for _, c := range r.Changes {
		if c.LosesData {
			n++
		}
	}
	return n
}

// Doubt says why the program may change more than the report has, beyond what is approximate; empty: nothing is known
// that speaks for it.
func (r *Report) Doubt() string {
	switch {
	case !r.Settled:
		return "the program had not settled"
	case len(r.Refused) > 0:
		return "requests were refused"
	case len(r.Missing) > 0:
		return "the plan lacks rights"
	case len(r.Unserved) > 0:
		return "the cluster does not have what the program asks for"
	case len(r.Elsewhere) > 0:
		return "the program was connected to something else than the fork"
	}
	return ""
}

// ExitStatus is the one of a program that has made the report: 0 if nothing would be changed, 2 if something would or,
// for a comparison, the other report has changes that this one has not, and 1 if nothing would as far as the report
// knows, and there is a doubt, also of the other report.
func (r *Report) ExitStatus() int {
	switch {
	case len(r.Changes)+len(r.NoLonger) > 0:
		return 2
	case r.Doubt()+r.OtherDoubt != "":
		return 1
	}
	return 0
}

// Waves returns the number of waves.
func (r *Report) Waves() int {
	if len(r.Changes) == 0 {
		return 0
	}
	return slices.MaxFunc(r.Changes, func(a, b Change) int { return cmp.Compare(a.Wave, b.Wave) }).Wave
}
