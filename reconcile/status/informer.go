package status

import (
	"fmt"
	"time"
)

// Informer is what an informer of the Manager says.
type Informer struct {
	Name     string `json:"name"`
	Group    string `json:"group,omitempty"`    // of what it follows, if its client says it
	Version  string `json:"version,omitempty"`  // the same
	Resource string `json:"resource,omitempty"` // the same
	Objects  int    `json:"objects"`            // in its cache
	Bytes    int    `json:"bytes,omitempty"`    // that its cache takes, about: see informer.Health
	// ResourceVersion is how far the cache has come.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// The following are those of informer.Health. Reason is its LastError, while State is not Live.
	State        string    `json:"state"`
	Since        time.Time `json:"since,omitzero"`
	Reason       *Error    `json:"reason,omitempty"`
	LastProgress time.Time `json:"lastProgress,omitzero"`
	// Silent says that the cache is Live although the server has sent nothing for five minutes, not even a bookmark.
	Silent     bool `json:"silent,omitempty"`
	Lists      int  `json:"lists,omitempty"`
	Rewinds    int  `json:"rewinds,omitempty"`
	Slices     int  `json:"slices,omitempty"`
	Unknown    int  `json:"unknown,omitempty"`
	ByMetadata int  `json:"byMetadata,omitempty"`
	Rejected   int  `json:"rejected,omitempty"`
	Queued     int  `json:"queued,omitempty"`
	// Namespaces are those that the informer follows one by one; none if it follows all together. Each has a name, a
	// version, a state with its time and reason, and its last progress; the other fields are of the informer. Those of
	// a reconcile.Dynamic are its informers, by the names that objects give them.
	Namespaces []Namespace `json:"namespaces,omitempty"`
}

// Size is how much of the heap the cache takes, about: "3.4 MB".
func (i Informer) Size() string {
	switch {
	case i.Bytes < 1e6:
		return fmt.Sprintf("%d kB", (i.Bytes+999)/1000)
	case i.Bytes < 1e9:
		return fmt.Sprintf("%.1f MB", float64(i.Bytes)/1e6)
	default:
		return fmt.Sprintf("%.2f GB", float64(i.Bytes)/1e9)
	}
}

// Namespace is the part of an Informer that a namespace has for itself.
type Namespace struct {
	Name            string    `json:"name"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	State           string    `json:"state"`
	Since           time.Time `json:"since,omitzero"`
	Reason          *Error    `json:"reason,omitempty"`
	LastProgress    time.Time `json:"lastProgress,omitzero"`
}
