package reconcile

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"iter"
	"mime"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/diff"
)

// The body of an update is a whole object. What it changes shows only beside the object that it was made from: the one
// in the cache, if that has the same version. A cache that has moved on, or that has not yet seen the version, says
// nothing about the update.

// updatedPaths returns the paths of the fields in which the body of an update differs from the cached object: at most
// maxPaths, and how many there are besides. known is false if the cache does not have the version that the update was
// made from, or the body cannot be read.
func updatedPaths(caches iter.Seq[*cache], seed maphash.Seed, contentType string, to target,
	body []byte) (paths []string, more int, known bool) {
	for c := range caches {
		s := c.learner.scopeOf(to.namespace)
		if s == nil || !s.sameResource(to) {
			continue
		}
		old, ok := c.object(Key{Namespace: to.namespace, Name: to.name})
		if !ok {
			continue
		}
		// Types of the user's may decode and encode themselves. A panic of theirs must not keep the request from the
		// server.
		err := lifecycle.Try(func() {
			now, ok := decodeLike(old, contentType, body)
			if known = ok && sameVersion(old, now); known {
				paths, more = pathsOf(diff.Of(seed, old, now), to.resource == "secrets")
			}
		})
		if known && err == nil {
			return paths, more, true
		}
	}
	return nil, 0, false
}

// decodeLike decodes an object of the same type as another one.
func decodeLike(like any, contentType string, body []byte) (o any, ok bool) {
	t := reflect.TypeOf(like)
	if _, partial := like.(*metav1.PartialObjectMetadata); partial || t.Kind() != reflect.Pointer {
		return nil, false // what is not in the cache cannot be compared
	}
	o = reflect.New(t.Elem()).Interface()
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case runtime.ContentTypeJSON:
		return o, json.Unmarshal(body, o) == nil
	case runtime.ContentTypeProtobuf:
		var envelope runtime.Unknown
		message, ok := o.(interface{ Unmarshal([]byte) error })
		raw, _ := bytes.CutPrefix(body, protobufPrefix)
		return o, ok && envelope.Unmarshal(raw) == nil && message.Unmarshal(envelope.Raw) == nil
	}
	return nil, false
}

// sameVersion reports whether two states of an object claim to be the same version of it.
func sameVersion(old, now any) bool {
	a, ok := old.(metav1.Object)
	b, also := now.(metav1.Object)
	return ok && also && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

var indices = regexp.MustCompile(`\[\d+\]`)

// pathsOf names changed fields as changedPaths does.
func pathsOf(changes []diff.Change, onlyTop bool) (paths []string, more int) {
	for _, c := range changes {
		p := indices.ReplaceAllString(c.Name, "[]")
		if onlyTop {
			p, _, _ = strings.Cut(p, ".")
		}
		if c.Old != c.Now && !slices.Contains(paths, p) && !slices.Contains(unsaid, p) {
			paths = append(paths, p)
		}
	}
	shown := min(len(paths), maxPaths)
	return paths[:shown:shown], len(paths) - shown
}
