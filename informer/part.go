package informer

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// part is what one list-watch has of a resource: the objects of a namespace, the one object of a name, or all of them.
// Parts of one informer do not overlap.
type part struct {
	namespace string
	name      string // empty: every object of the namespace
}

// whole is the part of an informer that has one client.
var whole part

// partOf returns the part of an id.
func partOf(id string) part {
	namespace, name, _ := strings.Cut(id, "/")
	return part{namespace, name}
}

// id is the part as methods of an informer take it: the namespace, or namespace/name, as a [Key] is printed. That of
// whole is NamespaceAll.
func (p part) id() string {
	if p.name == "" {
		return p.namespace
	}
	return p.namespace + "/" + p.name
}

// has reports whether an object of that key belongs to the part.
func (p part) has(key Key) bool {
	return p == whole || key.Namespace == p.namespace && (p.name == "" || key.Name == p.name)
}

func (p part) compare(q part) int {
	return cmp.Or(cmp.Compare(p.namespace, q.namespace), cmp.Compare(p.name, q.name))
}

// kind is what a part of this kind is called.
func (p part) kind() string {
	if p.name == "" {
		return "namespace"
	}
	return "object"
}

func (p part) String() string { return p.kind() + " " + p.id() }

// selecting adds the part's name to a field selector. The namespace is in the address of a request.
func (p part) selecting(fieldSelector string) string {
	if p.name == "" {
		return fieldSelector
	}
	byName := fields.OneTermEqualSelector("metadata.name", p.name).String()
	if fieldSelector == "" {
		return byName
	}
	return byName + "," + fieldSelector
}
