package status

import (
	"fmt"
	"strings"
	"time"
)

// Write is a request to write that TrackWrites has seen, or that Wrote or Deleted has reported.
type Write struct {
	At   time.Time     `json:"at"` // when it was sent
	Took time.Duration `json:"took,omitempty"`
	// Verb is create, update, patch, apply, delete or deletecollection, or wrote or deleted for a report.
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"` // of a report, the informer's name
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	DryRun      bool   `json:"dryRun,omitempty"`
	// Paths are the fields that a patch or an apply sets or removes, such as spec.replicas, and those in which an
	// update differs from the cached object; up to eight of them, and MorePaths counts the others. Elements of lists
	// have no index. Of a Secret there are only the top fields. Other verbs have no paths.
	Paths     []string `json:"paths,omitempty"`
	MorePaths int      `json:"morePaths,omitempty"`
	// PathsUnknown says in a few words why the paths of a patch, an apply or an update are not known: its body is
	// longer than 64 KiB, the controller wrote more than 512 KiB a second, or no cache of the controller had the
	// version that was updated. It is empty if they are known.
	PathsUnknown string `json:"pathsUnknown,omitempty"`
	// Code is the HTTP status of the answer, or 0 if the answer was lost, or for a report. ResourceVersion is that of
	// the object after the write.
	Code            int    `json:"code,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Lost says that it is unknown whether the write has happened.
	Lost  bool   `json:"lost,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// String names the request, as the log does: "patch pods/status default/web".
func (w Write) String() string {
	s := w.Verb + " " + w.Resource
	if w.Subresource != "" {
		s += "/" + w.Subresource
	}
	if w.Name == "" && w.Namespace != "" {
		return s + " in " + w.Namespace
	}
	return strings.TrimRight(fmt.Sprintf("%s %s", s, strings.TrimPrefix(w.Namespace+"/"+w.Name, "/")), " ")
}

// Request is a request of any kind.
type Request struct {
	Method   string    `json:"method"`
	Resource string    `json:"resource,omitempty"`
	Since    time.Time `json:"since"`
	// Answered says that no request is under way any more. Code is the HTTP status, or 0 if there was no answer.
	Answered bool `json:"answered,omitempty"`
	Code     int  `json:"code,omitempty"`
}

// Debt is something that a key waits for in one cache.
type Debt struct {
	Kind DebtKind `json:"kind"`
	// Informer is that of the cache. Namespace and Name are of the object that was written; a name may be unknown. If
	// the cache is not ready, Namespace is where it is not.
	Informer  string `json:"informer"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// ResourceVersion is that of the write, if it has one.
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Since           time.Time `json:"since"`
	// RelistAt is when the informer lists anew if the debt is still open.
	RelistAt time.Time `json:"relistAt,omitzero"`
	// The cache at the time of the record.
	CacheVersion string    `json:"cacheVersion,omitempty"`
	CacheState   string    `json:"cacheState"`
	CacheSince   time.Time `json:"cacheSince,omitzero"`
	CacheReason  *Error    `json:"cacheReason,omitempty"`
	// CacheInvalid says that the cache cannot take what was written.
	CacheInvalid bool `json:"cacheInvalid,omitempty"`
}

// DebtKind is the kind of a debt; the doc of package reconcile says what ends each.
type DebtKind string

const (
	DebtChange   DebtKind = "change"         // the object has been created or changed
	DebtDeletion DebtKind = "deletion"       // the object has been deleted
	DebtUnknown  DebtKind = "unknownOutcome" // the answer to a write was lost
	DebtNotReady DebtKind = "cacheNotReady"  // no write: the cache is incomplete, or older than its MaxStaleness
	DebtUnderWay DebtKind = "underWay"       // a write that has not been answered; of any resource, so without a cache
)
