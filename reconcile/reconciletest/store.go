package reconciletest

import (
	"cmp"
	"errors"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// object is what is stored. Once it is in the store nobody changes it any more, so it is shared without copies; what a
// client gets is encoded.
type object interface {
	metav1.Object
	runtime.Object
}

func copyOf(o object) object { return o.DeepCopyObject().(object) }

// firstVersion is that of a new store. It is not 1, so that there are versions that are too old, as on a server that
// has been in use.
const firstVersion = 1000

// store is what etcd is to the real server: all objects in all their versions, under one counter that each write moves
// by one.
type store struct {
	mu sync.Mutex
	// Guarded by mu. version is that of the last write. objects holds the versions of each object, in order, and events
	// one entry for each write, in order, so that each version after firstVersion belongs to exactly one of either.
	// Nothing before compacted may be read any more, although it is still there: a watch that was open before goes on.
	version   int64
	compacted int64
	objects   map[schema.GroupResource]map[types.NamespacedName][]revision
	events    []event
	// Guarded by mu: of the resources that came from the base of a fork, the version at which they came. Nothing of
	// them can be read as it was before.
	floors map[schema.GroupResource]int64
	// Guarded by mu. Each change closes it and puts a new one in its place; so does whatever else a watch should have a
	// look at.
	changed chan struct{}
	// Guarded by mu. A restore begins a new epoch, and no watch survives one.
	epoch int
	// Guarded by mu: the server has ended, and answers nothing any more.
	stopped bool
}

// revision is an object from one version on until its next; nil: there is none. One that came from the base of a fork
// has the version 0.
type revision struct {
	version int64
	object  object
	lent    bool
}

// event is one write: old is nil for a creation, object nil for a deletion.
type event struct {
	version     int64
	resource    schema.GroupResource
	old, object object
	at          time.Time
}

func newStore() *store {
	return &store{
		version: firstVersion, compacted: firstVersion,
		objects: make(map[schema.GroupResource]map[types.NamespacedName][]revision),
		floors:  make(map[schema.GroupResource]int64),
		changed: make(chan struct{}),
	}
}

// seed puts objects into the store as they are, with their resourceVersions, as what a resource held at a version of
// the base of a fork. What is there already stays.
func (s *store) seed(resource schema.GroupResource, objects []object, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = max(s.version, version)
	s.floors[resource] = s.version
	if s.objects[resource] == nil {
		s.objects[resource] = make(map[types.NamespacedName][]revision, len(objects))
	}
	for _, o := range objects {
		if key := keyOf(o); len(s.objects[resource][key]) == 0 {
			s.objects[resource][key] = []revision{{object: o}}
		}
	}
	s.wakeLocked()
}

// seeded reports whether an object is as it came from the base of a fork.
func (s *store) seeded(resource schema.GroupResource, key types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	revisions := s.objects[resource][key]
	return len(revisions) == 1 && revisions[0].version == 0
}

// seededAfter returns the objects of a resource that came from the base of a fork and had a later resourceVersion, in
// their order, and the version at which they came.
func (s *store) seededAfter(resource schema.GroupResource, version int64) (later []object, floor int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if floor = s.floors[resource]; version >= floor {
		return nil, floor
	}
	versionOf := func(o object) int64 {
		v, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64) // 0 for what has none
		return v
	}
	for _, revisions := range s.objects[resource] {
		if len(revisions) == 0 { // all of them are compacted
			continue
		}
		if first := revisions[0]; first.version == 0 && versionOf(first.object) > version {
			later = append(later, first.object)
		}
	}
	slices.SortFunc(later, func(a, b object) int { return cmp.Compare(versionOf(a), versionOf(b)) })
	return later, floor
}

// floor returns the version at which a resource came from the base of a fork; 0: it did not.
func (s *store) floor(resource schema.GroupResource) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.floors[resource]
}

// compactedLocked returns the version before which nothing of a resource can be read.
func (s *store) compactedLocked(resource schema.GroupResource) int64 {
	return max(s.compacted, s.floors[resource])
}

// get returns the newest version of an object, or nil.
func (s *store) get(resource schema.GroupResource, key types.NamespacedName) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at(s.objects[resource][key], s.version)
}

// getAt returns an object as it was at a version, or nil.
func (s *store) getAt(resource schema.GroupResource, key types.NamespacedName, version int64) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at(s.objects[resource][key], version)
}

// any reports whether there is an object of a resource, or has been.
func (s *store) any(resource schema.GroupResource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects[resource]) > 0
}

// lent reports whether an object is stored without something that was filled in: see rules.lend.
func (s *store) lent(resource schema.GroupResource, o object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	revisions := s.objects[resource][keyOf(o)]
	return len(revisions) > 0 && revisions[len(revisions)-1].object == o && revisions[len(revisions)-1].lent
}

// at returns the revision that is in force at a version, or nil.
func at(revisions []revision, version int64) object {
	i := sort.Search(len(revisions), func(i int) bool { return revisions[i].version > version })
	if i == 0 {
		return nil
	}
	return revisions[i-1].object
}

// list returns all objects of a resource as they were at a version, in the order of namespace and name.
func (s *store) list(resource schema.GroupResource, version int64) []object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked(resource, version)
}

func (s *store) listLocked(resource schema.GroupResource, version int64) []object {
	type entry struct {
		path string // made once: to compare takes most of the time for a list of many objects
		object
	}
	var entries []entry
	for key, revisions := range s.objects[resource] {
		if o := at(revisions, version); o != nil {
			entries = append(entries, entry{etcdPath(key), o})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	var all []object
	for _, e := range entries {
		all = append(all, e.object)
	}
	return all
}

// errRaced says that somebody else was faster: the object is not what it was when the writer read it.
var errRaced = errors.New("the object has changed meanwhile")

// write replaces was, nil for a creation, by is, nil for a deletion, unless the object has changed since was was read.
// The object is given the resourceVersion of the write; it is the store's from then on. A deletion returns the last
// state of the object, at the version of the deletion.
func (s *store) write(resource schema.GroupResource, key types.NamespacedName, was, is object) (object, error) {
	return s.writeLent(resource, key, was, is, false)
}

// writeLent is write, of an object into which something was filled in that is not stored.
func (s *store) writeLent(resource schema.GroupResource, key types.NamespacedName, was, is object, lent bool) (object,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := at(s.objects[resource][key], s.version)
	if !isStill(live, was) {
		return nil, errRaced
	}
	s.version++
	e := event{version: s.version, resource: resource, old: live, object: is, at: time.Now()}
	written := is
	if is == nil {
		written = copyOf(live)
		e.old = written
	}
	written.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if s.objects[resource] == nil {
		s.objects[resource] = make(map[types.NamespacedName][]revision)
	}
	s.objects[resource][key] = append(s.objects[resource][key], revision{s.version, is, lent})
	s.events = append(s.events, e)
	s.wakeLocked()
	return written, nil
}

// isStill reports whether was is what is stored, or that in another version of its kind.
func isStill(live, was object) bool {
	return live == was || live != nil && was != nil && live.GetResourceVersion() == was.GetResourceVersion() &&
		live.GetUID() == was.GetUID()
}

// namesakes returns the UIDs of the objects whose name another object has had, earlier or later.
func (s *store) namesakes() map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	type name struct {
		resource schema.GroupResource
		key      types.NamespacedName
	}
	first, all := map[name]types.UID{}, map[types.UID]bool{}
	for _, e := range s.events {
		if e.old != nil {
			continue
		}
		n := name{e.resource, keyOf(e.object)}
		if earlier, ok := first[n]; ok {
			all[earlier], all[e.object.GetUID()] = true, true
		}
		first[n] = e.object.GetUID()
	}
	return all
}

// changes returns the channel that the next change closes.
func (s *store) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// wakeLocked makes everybody who waits for a change look again.
func (s *store) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// compact forbids to read what was before the present version.
func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
}

// restore makes everything what it was at a version, and that the newest one, as the restore of a backup of etcd does.
// It ends every watch.
func (s *store) restore(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.compacted = version, version
	s.events = slices.DeleteFunc(s.events, func(e event) bool { return e.version > version })
	for _, keys := range s.objects {
		for key, revisions := range keys {
			keys[key] = slices.DeleteFunc(revisions, func(r revision) bool { return r.version > version })
		}
	}
	s.epoch++
	s.wakeLocked()
}

// stop ends the server, and with it every watch.
func (s *store) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.wakeLocked()
}

// eventsAfterLocked returns the events that follow a version.
func (s *store) eventsAfterLocked(version int64) []event {
	i := sort.Search(len(s.events), func(i int) bool { return s.events[i].version > version })
	return s.events[i:]
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// etcdPath is by what etcd orders: a slash is in front of letters, and behind a hyphen.
func etcdPath(key types.NamespacedName) string { return key.Namespace + "/" + key.Name }
