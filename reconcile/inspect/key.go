package inspect

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// keyPage is the page of a key.
type keyPage struct {
	moment
	status.Key
	Object   string // namespace/name
	Timeline timeline
	Runs     []keyRun // the latest first, the one that goes on included
	Owners   []owner
	Children []child
	Actions  bool
}

// keyRun is a run on the page of its key.
type keyRun struct {
	moment
	status.Run
	Number int // on this page, as the timeline's links have it
	Going  bool
}

func (h *handler) keyView(ctx context.Context, from source, query url.Values) view {
	controller := query.Get("controller")
	key := reconcile.Key{Namespace: query.Get("namespace"), Name: query.Get("name")}
	if !slices.Contains(from.controllers(), controller) {
		return view{problem: "There is no such controller."}
	}
	k, ok := from.key(ctx, controller, key)
	if !ok {
		return view{problem: "The bundle does not have this key in full. It has at most " + count(maxDetails) +
			" keys of each controller in full, the most urgent first."}
	}
	_, recorded := from.(*Bundle)
	p := keyPage{moment: moment{k.At}, Key: k, Object: objectName(k.Namespace, k.Name),
		Actions: h.opts.Actions && !recorded}
	runs := k.Runs
	if k.Running != nil {
		runs = append(slices.Clone(runs), *k.Running)
	}
	for i, r := range runs {
		p.Runs = append(p.Runs, keyRun{p.moment, r, i + 1, k.Running != nil && i == len(runs)-1})
	}
	p.Timeline = timelineOf(k, p.Runs)
	p.Owners = ownersOf(k, from.status())
	p.Children = childrenOf(k, runs, from.status())
	slices.Reverse(p.Runs)
	return view{title: p.Object, controller: controller, template: "key", body: p, data: k}
}

// Took is how long a run took, or has taken so far.
func (r keyRun) Took() string {
	if r.Going {
		return r.Ago(r.Started)
	}
	return duration(r.Run.Took)
}

// Waited is what the key has waited for before the run, in words, and how long.
func (r keyRun) Waited() []string { return waited(r.moment, r.Waits) }

// Waited is what the key waits for now.
func (p keyPage) Waited() []string { return waited(p.moment, p.Waits) }

func waited(m moment, waits []status.Wait) (all []string) {
	for _, w := range waits {
		to := w.To
		if to.IsZero() {
			to = m.Now
		}
		text := waitWords[w.For] + " " + duration(to.Sub(w.From))
		var caches []string
		for _, d := range w.Debts {
			name := d.Informer
			if d.ResourceVersion != "" {
				name += "@" + d.ResourceVersion
			}
			if !slices.Contains(caches, name) {
				caches = append(caches, name)
			}
		}
		if len(caches) > 0 {
			text += " (" + strings.Join(caches, ", ") + ")"
		}
		all = append(all, text)
	}
	return all
}

var waitWords = map[status.WaitReason]string{status.WaitQueue: "queued", status.WaitParked: "parked",
	status.WaitHotLoop: "rested", status.WaitBackoff: "backed off", status.WaitRequeue: "scheduled",
	status.WaitPaused: "paused"}

// owner is the controlling owner of the key's object.
type owner struct {
	status.Owner
	Controller string // of this Manager that has the owner as a key, or empty
}

// ownersOf returns the owners of a key's objects. A kind does not tell its resource, so the link to the owner's page
// follows the naming that nearly all kinds have.
func ownersOf(k status.Key, m status.Manager) (all []owner) {
	for _, object := range k.Objects {
		if object.Owner == nil {
			continue
		}
		o := owner{Owner: *object.Owner}
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: o.Group, Kind: o.Kind})
		for _, inf := range m.Informers {
			if inf.Group == o.Group && inf.Resource == plural.Resource && o.Controller == "" {
				o.Controller = controllerFor(inf.Name, m)
			}
		}
		all = append(all, o)
	}
	return all
}

// child is an object that runs of the key have written, or whose change has named the key through Owns.
type child struct {
	Resource, Namespace, Name string
	Verb                      string // of the last write that is remembered, or empty
	Code                      int
	Lost                      bool
	ResourceVersion           string // the latest that is remembered
	Controller                string // of this Manager that has the object as a key of its own, or empty
}

// maxChildren is how many children a page shows.
const maxChildren = 50

// childrenOf returns the objects that a key has written or that have named it as their owner, by what is remembered of
// it, in the order in which they came up. The key's own object is not among them.
func childrenOf(k status.Key, runs []status.Run, m status.Manager) (all []child) {
	find := func(resource, namespace, name string) *child {
		i := slices.IndexFunc(all, func(c child) bool {
			return c.Resource == resource && c.Namespace == namespace && c.Name == name
		})
		if i < 0 {
			all = append(all, child{Resource: resource, Namespace: namespace, Name: name,
				Controller: controllerFor(resource, m)})
			i = len(all) - 1
		}
		return &all[i]
	}
	named := func(causes []status.Cause) {
		for _, c := range causes {
			if resource, ok := strings.CutPrefix(c.Source, "Owns "); ok && c.Name != "" {
				find(resource, c.Namespace, c.Name).ResourceVersion = c.ResourceVersion
			}
		}
	}
	for _, r := range runs {
		named(r.Causes)
		for _, w := range r.Writes {
			if w.Name == "" || w.DryRun {
				continue
			}
			c := find(w.Resource, w.Namespace, w.Name)
			c.Verb, c.Code, c.Lost = resourceVerb(w), w.Code, w.Lost
			c.ResourceVersion = cmp.Or(w.ResourceVersion, c.ResourceVersion)
		}
	}
	named(k.Causes)
	all = slices.DeleteFunc(all, func(c child) bool {
		return c.Namespace == k.Namespace && c.Name == k.Name && controllerFor(c.Resource, m) == k.Controller
	})
	return all[max(len(all)-maxChildren, 0):]
}

func resourceVerb(w status.Write) string {
	if w.Subresource != "" {
		return w.Verb + " " + w.Subresource
	}
	return w.Verb
}

// controllerFor is the controller of a Manager whose keys are the objects of an informer.
func controllerFor(informer string, m status.Manager) string {
	for _, c := range m.Controllers {
		if slices.Contains(c.Sources, "For "+informer) {
			return c.Name
		}
	}
	return ""
}
