package reconcile

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// target is what a request to a Kubernetes API is about.
type target struct {
	host, group, resource string // host has the prefix of a proxy, which tells a server from the others behind it
	namespace, name       string // name is empty for a whole collection and for a create
	subresource           string // one segment: proxy may be followed by a path, which is left out
}

// The path of a request has one of these shapes, with the prefix of a proxy in front of it (Kubernetes API Concepts,
// "Resource URIs"):
//
//	/api/VERSION/...                         the core group, ""
//	/apis/GROUP/VERSION/...                  any other
//
// followed by RESOURCE, RESOURCE/NAME or RESOURCE/NAME/SUBRESOURCE, with namespaces/NAMESPACE/ in front for what lives
// in a namespace.
//
// No segment tells by itself what it is: a version may be any label, a prefix may contain "api", and a namespace may be
// called "pods". But an informer asks for a whole collection, so its path ends in a resource, and is read from its end.
// It says where the group of that resource begins; each write there is read from its beginning. A path of which no
// informer has told is not understood, and need not be: nobody waits for it.

// collection is a resource on a server, as the requests of an informer tell of it.
type collection struct {
	target        // host, group and resource
	root   string // what stands in front of the version: the host, and the path of the group
}

// address is what two requests to one server have in common however they are written, and the path.
func addressOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch strings.ToLower(u.Scheme) {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	absolute := u.Path
	if !strings.HasPrefix(absolute, "/") {
		absolute = "/" + absolute
	}
	return host + path.Clean(absolute)
}

// collectionOf reads an address that an informer asks, from its end. The namespace is empty if it asks for all of them.
func collectionOf(address string) (c collection, namespace string, ok bool) {
	rest, resource, _ := cutLast(address)
	if before, name, ok := cutLast(rest); ok {
		if before, marker, ok := cutLast(before); ok && marker == "namespaces" {
			if c, ok := groupOf(before); ok {
				c.resource = resource
				return c, name, true
			}
		}
	}
	c, ok = groupOf(rest)
	c.resource = resource
	return c, "", ok && resource != ""
}

// groupOf reads an address that ends in the version of a group.
func groupOf(address string) (c collection, ok bool) {
	c.root, _, _ = cutLast(address)
	before, last, ok := cutLast(c.root)
	if host, marker, grouped := cutLast(before); grouped && marker == "apis" {
		c.host, c.group = host, last
		return c, true
	}
	c.host = before
	return c, ok && last == "api"
}

// cutLast cuts the last segment off an address; ok is false if nothing but the host is left of it.
func cutLast(address string) (before, last string, ok bool) {
	i := strings.LastIndexByte(address, '/')
	if i < 0 {
		return "", address, false
	}
	return address[:i], address[i+1:], true
}

// read reads the address of a request to the collection, or to something in it.
func (c *collection) targetOf(address string) (t target, ok bool) {
	rest, ok := strings.CutPrefix(address, c.root)
	if !ok {
		return t, false
	}
	rest, ok = strings.CutPrefix(rest, "/")
	_, rest, more := strings.Cut(rest, "/") // whatever the version: it is the same object in each
	if !ok || !more {
		return t, false
	}
	t = target{host: c.host, group: c.group}
	t.resource, t.name, t.subresource = cutTwo(rest)
	if t.resource == "namespaces" && (c.resource != "namespaces" || !ofNamespace(t.subresource)) {
		t.namespace = t.name
		t.resource, t.name, t.subresource = cutTwo(t.subresource)
	}
	t.subresource, _, _ = strings.Cut(t.subresource, "/")
	return t, t.resource == c.resource
}

// ofNamespace reports whether namespaces/NAME/rest is about the namespace itself, and not about something that lives in
// it.
func ofNamespace(rest string) bool { return rest == "" || rest == "status" || rest == "finalize" }

// three cuts a path into two segments and the rest.
func cutTwo(path string) (first, second, rest string) {
	first, path, _ = strings.Cut(path, "/")
	second, rest, _ = strings.Cut(path, "/")
	return first, second, rest
}

// guess says what a request that is not read by any collection seems to be about. It is good for names, and nothing is
// decided by it.
func guessTarget(address string) (t target) {
	parts := strings.Split(address, "/")
	for i := 1; i < len(parts); i++ {
		c := collection{target: target{host: strings.Join(parts[:i], "/")}}
		version := i + 1
		switch {
		case parts[i] == "apis" && len(parts) > i+3:
			c.group = parts[i+1]
			version++
		case parts[i] == "api" && len(parts) > i+2:
		default:
			continue
		}
		c.root = strings.Join(parts[:version], "/")
		c.resource = parts[version+1]
		if inside := parts[version+1:]; c.resource == "namespaces" && len(inside) > 2 && !ofNamespace(inside[2]) {
			c.resource = inside[2]
		}
		t, _ = c.targetOf(address)
		return t
	}
	return t
}

// maxOptions bounds how much of a request's body is looked at. Options have a few hundred bytes.
const maxOptions = 64 << 10

// dryRun reports whether a request asks for nothing to be changed. It returns the request that is to be sent: its body
// may have been read. What cannot be read is no dry run.
//
// Options are in the query, but those of a deletion are in its body, if it has one: then the server takes no notice of
// the query.
func dryRun(req *http.Request) (*http.Request, bool) {
	asked := strings.Contains(req.URL.RawQuery, "dryRun") && req.URL.Query().Has("dryRun")
	if req.Method != http.MethodDelete || req.Body == nil || req.Body == http.NoBody {
		return req, asked
	}
	req, body, whole := peekBody(req)
	if whole && len(body) == 0 {
		return req, asked
	}
	return req, whole && isDryDeletion(req.Header.Get("Content-Type"), body)
}

// peek reads the body of a request, unless that is long: whole is false then. The request that it returns has the body
// as it was.
func peekBody(req *http.Request) (same *http.Request, body []byte, whole bool) {
	from := req.Body
	if req.GetBody != nil {
		again, err := req.GetBody()
		if err != nil {
			return req, nil, false
		}
		defer again.Close()
		from = again
	}
	body, err := io.ReadAll(io.LimitReader(from, maxOptions+1))
	whole = err == nil && len(body) <= maxOptions
	if req.GetBody != nil {
		return req, body, whole
	}
	rest := io.Reader(req.Body)
	if err != nil {
		rest = failingReader{err}
	}
	same = new(http.Request)
	*same = *req // as a RoundTripper may not change it
	same.Body = readCloser{io.MultiReader(bytes.NewReader(body), rest), req.Body}
	return same, body, whole
}

// readCloser reads here and closes there.
type readCloser struct {
	io.Reader
	io.Closer
}

// failing is the rest of a body that could not be read.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// dryDeletion reports whether the body of a deletion asks for a dry run.
func isDryDeletion(contentType string, body []byte) bool {
	if !bytes.Contains(body, []byte(metav1.DryRunAll)) {
		return false // which is how the only value there is looks in every encoding
	}
	var options struct {
		DryRun []string `json:"dryRun"`
	}
	var err error
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case "", runtime.ContentTypeJSON:
		err = utiljson.Unmarshal(body, &options)
	case runtime.ContentTypeCBOR:
		var everything map[string]any // the decoder refuses fields that are not asked for
		err = direct.Unmarshal(body, &everything)
		if values, ok := everything["dryRun"].([]any); ok && len(values) > 0 {
			return err == nil
		}
	case runtime.ContentTypeProtobuf:
		var envelope runtime.Unknown
		var message metav1.DeleteOptions
		raw, _ := bytes.CutPrefix(body, protobufPrefix)
		if err = envelope.Unmarshal(raw); err == nil {
			err = message.Unmarshal(envelope.Raw)
		}
		options.DryRun = message.DryRun
	}
	return err == nil && len(options.DryRun) > 0
}
