package debts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	wrongUID        = "11111111-1111-4111-8111-111111111111"
	generatedPrefix = "generated-"
)

// answersDefinitions are the custom resources of the scripts.
var answersDefinitions = []string{
	answersDefinition("Thing", `"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas",`+
		`"statusReplicasPath":".status.replicas"}},`),
	answersDefinition("Plain", ""),
}

func answersDefinition(kind, subresources string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"%[1]ss.answers.example.com"},
		"spec":{"group":"answers.example.com","scope":"Namespaced","names":{"plural":"%[1]ss","kind":%[2]q},
		"versions":[{"name":"v1","served":true,"storage":true,%[3]s"schema":{"openAPIV3Schema":{"type":"object",
		"properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},
		"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}`,
		strings.ToLower(kind), kind, subresources)
}

const podTemplate = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// answersFields are what an object of each kind needs, besides metadata.
var answersFields = map[string]string{
	"cm":     `"metadata":{}`,
	"pods":   `"metadata":{},"spec":{"containers":[{"name":"c","image":"i"}]}`,
	"bound":  `"metadata":{},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}`,
	"ns":     `"metadata":{}`,
	"deploy": `"metadata":{},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}`,
	"rs":     `"metadata":{},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}`,
	"jobs": `"metadata":{},"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never",` +
		`"containers":[{"name":"c","image":"i"}]}}}`,
	"pdb":    `"metadata":{},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}`,
	"things": `"metadata":{},"spec":{"replicas":0}`,
	"plains": `"metadata":{},"spec":{"replicas":0}`,
}

// bodyOf makes an object of a kind. The fields are the inside of a JSON object.
func bodyOf(short, name, fields string) string {
	r := shorthands[short]
	o := map[string]any{}
	if err := json.Unmarshal([]byte("{"+fields+"}"), &o); err != nil {
		panic(err.Error() + ": " + fields)
	}
	o["apiVersion"], o["kind"] = r.apiVersion, r.kind
	if m := o["metadata"].(map[string]any); name != "" {
		m["name"] = name
	}
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// made returns the fields of a kind with an inside of its metadata.
func made(kind, metadata string) string {
	return strings.Replace(answersFields[kind], `"metadata":{}`, `"metadata":{`+metadata+`}`, 1)
}

// shortOf is the shorthand of a kind's collection.
func shortOf(kind string) string {
	if kind == "bound" {
		return "pods"
	}
	return kind
}

// post creates an object, with an inside of its metadata.
func post(what, kind, name, metadata string) step {
	short := shortOf(kind)
	return step{name: what, method: "POST", path: short, contentType: "application/json",
		body: bodyOf(short, name, made(kind, metadata))}
}

// put replaces an object by what it is, with another inside of the metadata. The path may end in a query.
func put(what, kind, path, metadata string) step {
	short, rest, _ := strings.Cut(path, "/")
	name, _, _ := strings.Cut(strings.Split(rest, "?")[0], "/")
	return step{name: what, method: "PUT", path: path, contentType: "application/json",
		body: bodyOf(short, name, made(kind, metadata))}
}

func merge(what, path, body string) step {
	return step{name: what, method: "PATCH", path: path, contentType: "application/merge-patch+json", body: body}
}

func jsonPatch(what, path, body string) step {
	return step{name: what, method: "PATCH", path: path, contentType: "application/json-patch+json", body: body}
}

// apply applies metadata alone, unless the kind needs more.
func apply(what, kind, name, metadata string) step {
	short := shortOf(kind)
	return step{name: what, method: "PATCH", path: short + "/" + name + "?fieldManager=me&force=true",
		contentType: "application/apply-patch+yaml", body: bodyOf(short, name, made(kind, metadata))}
}

func del(what, path, options string) step {
	s := step{name: what, method: "DELETE", path: path, body: options}
	if options != "" {
		s.contentType = "application/json"
	}
	return s
}

func get(what, path string) step { return step{name: what, method: "GET", path: path} }

const (
	finalizer1 = `"finalizers":["example.com/one"]`
	finalizer2 = `"finalizers":["example.com/one","example.com/two"]`
)

// answersScripts are all scripts.
func answersScripts() (all []script) {
	for _, kind := range []string{"cm", "pods", "bound", "things", "deploy", "jobs"} {
		all = append(all, liveScripts(kind)...)
	}
	for _, kind := range []string{"cm", "pods", "bound", "things"} {
		all = append(all, finalizerScripts(kind)...)
	}
	for _, kind := range []string{"cm", "bound", "things", "jobs", "rs"} {
		all = append(all, policyScripts(kind)...)
	}
	for _, kind := range []string{"cm", "pods", "bound", "things"} {
		all = append(all, collectionScripts(kind)...)
	}
	return slices.Concat(all, statusScripts(), scaleScripts(), podScripts(), namespaceScripts())
}

// of names a script of a kind.
func of(kind, what string) string {
	if kind == "bound" {
		return "Pod with a node: " + what
	}
	return shorthands[kind].kind + ": " + what
}

// liveScripts are about an object that nobody has deleted.
func liveScripts(kind string) []script {
	short := shortOf(kind)
	a := short + "/a"
	return []script{{of(kind, "created, changed and deleted"), []step{
		post("create", kind, "a", ``),
		post("create what exists", kind, "a", ``),
		merge("change by a merge patch", a, `{"metadata":{"labels":{"x":"1"}}}`),
		merge("merge patch that changes nothing", a, `{"metadata":{"labels":{"x":"1"}}}`),
		merge("empty merge patch", a, `{}`),
		jsonPatch("change by a JSON patch", a, `[{"op":"replace","path":"/metadata/labels/x","value":"2"}]`),
		jsonPatch("JSON patch that changes nothing", a, `[{"op":"replace","path":"/metadata/labels/x","value":"2"}]`),
		jsonPatch("JSON patch whose test fails", a, `[{"op":"test","path":"/metadata/labels/x","value":"1"}]`),
		merge("merge patch at the right version", a,
			`{"metadata":{"resourceVersion":"{{a.rv}}","labels":{"x":"3"}}}`),
		merge("merge patch at an older version", a,
			`{"metadata":{"resourceVersion":"{{a.rv1}}","labels":{"x":"4"}}}`),
		merge("merge patch at an older version that would change nothing", a,
			`{"metadata":{"resourceVersion":"{{a.rv1}}"}}`),
		merge("merge patch of another UID", a, `{"metadata":{"uid":"`+wrongUID+`","labels":{"x":"4"}}}`),
		merge("take out of the selector's reach, into it", a, `{"metadata":{"labels":{"in":"yes"}}}`),
		merge("change inside of the selector", a, `{"metadata":{"labels":{"x":"5"}}}`),
		merge("take out of the selector", a, `{"metadata":{"labels":{"in":null}}}`),
		merge("dry run of a merge patch", a+"?dryRun=All", `{"metadata":{"labels":{"x":"6"}}}`),
		post("dry run of a creation", kind, "b", ``).at(short + "?dryRun=All"),
		del("dry run of a deletion", a+"?dryRun=All", ``),
		del("dry run of a deletion, in its options", a, `{"dryRun":["All"]}`),
		del("delete another UID", a, `{"preconditions":{"uid":"`+wrongUID+`"}}`),
		del("delete at an older version", a, `{"preconditions":{"resourceVersion":"{{a.rv1}}"}}`),
		del("delete at the right UID and version, without a grace period", a,
			`{"gracePeriodSeconds":0,"preconditions":{"uid":"{{a.uid}}","resourceVersion":"{{a.rv}}"}}`),
		get("read what is gone", a),
		del("delete what is gone", a, ``),
		merge("merge patch of what is gone", a, `{"metadata":{"labels":{"x":"1"}}}`),
		jsonPatch("JSON patch of what is gone", a, `[{"op":"test","path":"/metadata/name","value":"a"}]`),
		post("create under the same name", kind, "a", `"labels":{"in":"yes"}`),
		del("delete with the UID of the one before", a, `{"preconditions":{"uid":"{{a.uid1}}"}}`),
		del("delete without a grace period", a, `{"gracePeriodSeconds":0}`),
	}}, {of(kind, "replaced by PUT"), []step{
		post("create", kind, "a", ``),
		put("replace at the right version", kind, a, `"resourceVersion":"{{a.rv}}","labels":{"x":"1"}`),
		put("replace, and change nothing", kind, a, `"resourceVersion":"{{a.rv}}","labels":{"x":"1"}`),
		put("replace at an older version", kind, a, `"resourceVersion":"{{a.rv1}}","labels":{"x":"2"}`),
		put("replace at an older version by the present state", kind, a,
			`"resourceVersion":"{{a.rv1}}","labels":{"x":"1"}`),
		put("replace without a version", kind, a, `"labels":{"x":"3"}`),
		put("replace another UID", kind, a, `"resourceVersion":"{{a.rv}}","uid":"`+wrongUID+`","labels":{"x":"4"}`),
		put("replace by what is invalid", kind, a, `"resourceVersion":"{{a.rv}}","labels":{"x":"///"}`),
		put("dry run of a replacement", kind, a+"?dryRun=All", `"resourceVersion":"{{a.rv}}","labels":{"x":"5"}`),
		put("replace what does not exist, with a version", kind, short+"/b", `"resourceVersion":"{{a.rv}}"`),
		put("replace what does not exist, without a version", kind, short+"/b", ``),
	}}, {of(kind, "applied"), []step{
		apply("apply what does not exist", kind, "a", `"labels":{"x":"1"}`),
		apply("apply the same", kind, "a", `"labels":{"x":"1"}`),
		apply("apply a change", kind, "a", `"labels":{"x":"2"}`),
		apply("apply at an older version", kind, "a", `"resourceVersion":"{{a.rv1}}","labels":{"x":"3"}`),
		apply("apply to another UID", kind, "a", `"uid":"`+wrongUID+`","labels":{"x":"3"}`),
		apply("dry run of an apply", kind, "a", `"labels":{"x":"3"}`).at(a + "?fieldManager=me&dryRun=All"),
		merge("another manager changes it", a+"?fieldManager=you", `{"metadata":{"labels":{"x":"4"}}}`),
		apply("apply against another manager, without force", kind, "a", `"labels":{"x":"5"}`).
			at(a + "?fieldManager=me"),
		apply("apply with force", kind, "a", `"labels":{"x":"5"}`),
	}}, {of(kind, "created under a generated name"), []step{
		post("create under a generated name", kind, "", `"generateName":"`+generatedPrefix+`"`),
		post("create what is invalid", kind, "UPPER", ``),
	}}}
}

// at is the step with another path.
func (s step) at(path string) step {
	s.path = path
	return s
}

// finalizerScripts are about an object that its finalizers keep.
func finalizerScripts(kind string) []script {
	short := shortOf(kind)
	a := short + "/a"
	with := func(metadata string) string { return `"resourceVersion":"{{a.rv}}",` + metadata }
	begin := []step{post("create with two finalizers", kind, "a", finalizer2),
		del("delete", a, ``),
		del("delete once more", a, ``),
		merge("change what is terminating", a, `{"metadata":{"labels":{"x":"1"}}}`)}
	const x = `,"labels":{"x":"1"}`
	last := func(what string, steps ...step) script {
		return script{of(kind, "terminating, "+what), append(slices.Clone(begin), steps...)}
	}
	if kind == "bound" { // its grace period would go on without finalizers
		for i := range begin {
			if begin[i].method == "DELETE" {
				begin[i].body, begin[i].contentType = `{"gracePeriodSeconds":0}`, "application/json"
			}
		}
	}
	return []script{
		last("finalizers removed by PUT",
			put("replace, and change nothing", kind, a, with(finalizer2+x)),
			put("PUT removes a finalizer, not the last", kind, a, with(finalizer1+x)),
			put("PUT at an older version would remove the last finalizer", kind, a,
				`"resourceVersion":"{{a.rv1}}"`),
			put("dry run of a PUT that removes the last finalizer", kind, a+"?dryRun=All", with(x[1:])),
			put("PUT removes the last finalizer", kind, a, with(x[1:])),
			get("read what is gone", a)),
		last("finalizers removed by merge patches",
			merge("merge patch that changes nothing", a, `{"metadata":{`+finalizer2+`}}`),
			merge("merge patch removes a finalizer, not the last", a, `{"metadata":{`+finalizer1+`}}`),
			merge("merge patch adds a finalizer to what is terminating", a, `{"metadata":{`+finalizer2+`}}`),
			merge("dry run of a merge patch that removes the last finalizer", a+"?dryRun=All",
				`{"metadata":{"finalizers":null}}`),
			merge("merge patch removes the last finalizer", a, `{"metadata":{"finalizers":null}}`),
			post("create under the same name", kind, "a", ``)),
		last("finalizers removed by JSON patches",
			jsonPatch("JSON patch removes a finalizer, not the last", a,
				`[{"op":"remove","path":"/metadata/finalizers/0"}]`),
			jsonPatch("JSON patch removes the last finalizer", a, `[{"op":"remove","path":"/metadata/finalizers/0"}]`)),
		last("all finalizers removed at once, with another change",
			merge("merge patch removes both finalizers and changes a label", a,
				`{"metadata":{"finalizers":[],"labels":{"x":"2"}}}`)),
		last("deleted without a grace period",
			del("delete without a grace period", a, `{"gracePeriodSeconds":0}`),
			del("delete without a grace period once more", a, `{"gracePeriodSeconds":0}`),
			del("delete another UID", a, `{"preconditions":{"uid":"`+wrongUID+`"}}`),
			del("dry run of a deletion", a+"?dryRun=All", ``),
			merge("merge patch removes both finalizers", a, `{"metadata":{"finalizers":null}}`)),
		{of(kind, "terminating, finalizer owned by an apply"), []step{
			apply("apply with a finalizer", kind, "a", finalizer1),
			del("delete", a, begin[1].body),
			apply("apply the same", kind, "a", finalizer1),
			apply("apply without the finalizer", kind, "a", ``),
			get("read what is gone", a)}},
		{of(kind, "live, finalizers added and removed"), []step{
			post("create", kind, "a", ``),
			merge("merge patch adds a finalizer", a, `{"metadata":{`+finalizer1+`}}`),
			merge("merge patch removes the last finalizer of a live object", a, `{"metadata":{"finalizers":null}}`),
			put("PUT adds a finalizer", kind, a, with(finalizer1)),
			put("PUT removes the last finalizer of a live object", kind, a, `"resourceVersion":"{{a.rv}}"`)}},
	}
}

// policyScripts are about deletions that keep an object until its dependents are seen to. What the garbage collector
// does to the object in the end is a step.
func policyScripts(kind string) []script {
	a := shortOf(kind) + "/a"
	options := func(policy string) string {
		if kind == "bound" {
			return `{"propagationPolicy":"` + policy + `","gracePeriodSeconds":0}`
		}
		return `{"propagationPolicy":"` + policy + `"}`
	}
	create := post("create", kind, "a", ``)
	collected := merge("the garbage collector removes its finalizer", a,
		`{"metadata":{"uid":"{{a.uid}}","finalizers":null}}`)
	return []script{
		{of(kind, "deleted with propagation Background"), []step{create,
			del("delete with propagation Background", a, options("Background"))}},
		{of(kind, "deleted with propagation Foreground"), []step{create,
			del("delete with propagation Foreground", a, options("Foreground")),
			del("delete once more with propagation Foreground", a, options("Foreground")),
			del("delete once more without a policy", a, ``),
			merge("change what is terminating", a, `{"metadata":{"labels":{"x":"1"}}}`), collected}},
		{of(kind, "deleted with propagation Orphan"), []step{create,
			del("delete with propagation Orphan, in the query", a+"?propagationPolicy=Orphan", options("Orphan")),
			collected}},
		{of(kind, "deleted in the foreground, then in the background"), []step{create,
			del("delete with propagation Foreground", a, options("Foreground")),
			del("delete with propagation Background", a, options("Background")),
			get("read the object", a)}},
		{of(kind, "deleted in the foreground, with a finalizer of its own"), []step{
			post("create with a finalizer", kind, "a", finalizer1),
			del("delete with propagation Foreground", a, options("Foreground")),
			del("delete with propagation Orphan", a, options("Orphan")),
			del("delete with propagation Background", a, options("Background")),
			jsonPatch("remove all finalizers", a, `[{"op":"remove","path":"/metadata/finalizers"}]`)}},
		{of(kind, "deleted with a policy that does not exist"), []step{create,
			del("delete with a policy that does not exist", a, options("Sideways"))}},
	}
}

// collectionScripts are about the deletion of collections.
func collectionScripts(kind string) []script {
	short := shortOf(kind)
	return []script{{of(kind, "collections deleted"), []step{
		post("create", kind, "a", `"labels":{"of":"test"}`),
		post("create with a finalizer", kind, "b", `"labels":{"of":"test","in":"yes"},`+finalizer1),
		post("create what another selector selects", kind, "c", `"labels":{"of":"other"}`),
		del("dry run of the deletion of a collection", short+"?labelSelector=of%3Dtest&dryRun=All", ``),
		del("delete the collection that a selector selects", short+"?labelSelector=of%3Dtest",
			`{"gracePeriodSeconds":0}`),
		del("delete the collection once more", short+"?labelSelector=of%3Dtest", `{"gracePeriodSeconds":0}`),
		merge("remove the last finalizer", short+"/b", `{"metadata":{"finalizers":null}}`),
		del("delete an empty collection", short+"?labelSelector=of%3Dtest", ``),
		del("delete the other collection in the foreground", short+"?labelSelector=of%3Dother",
			`{"propagationPolicy":"Foreground","gracePeriodSeconds":0}`),
	}}, {of(kind, "collection deleted with the usual grace period"), []step{
		post("create", kind, "a", `"labels":{"of":"test"}`),
		del("delete the collection", short+"?labelSelector=of%3Dtest", ``),
		del("delete the collection without a grace period", short+"?labelSelector=of%3Dtest",
			`{"gracePeriodSeconds":0}`),
	}}}
}

// statusScripts are about the status subresource.
func statusScripts() (all []script) {
	status := map[string]string{"pods": `{"message":"m"}`, "deploy": `{"replicas":3}`, "things": `{"replicas":3}`,
		"plains": `{"replicas":3}`, "jobs": `{"active":3}`}
	for _, kind := range []string{"pods", "deploy", "jobs", "things", "plains"} {
		a := kind + "/a"
		body := `{"status":` + status[kind] + `}`
		all = append(all, script{of(kind, "status"), []step{
			post("create", kind, "a", `"labels":{"in":"yes"}`),
			merge("change the status by a merge patch", a+"/status", body),
			merge("merge patch that changes nothing", a+"/status", body),
			merge("status in a merge patch of the object", a, strings.ReplaceAll(body, "3", "4")),
			merge("status at an older version", a+"/status",
				`{"metadata":{"resourceVersion":"{{a.rv1}}"},"status":`+status[kind]+`}`),
			put("replace the status, and change nothing", kind, a+"/status", `"resourceVersion":"{{a.rv}}"`),
			put("replace the status at an older version", kind, a+"/status", `"resourceVersion":"{{a.rv1}}"`),
			merge("dry run of a change of the status", a+"/status?dryRun=All", `{"status":null}`),
			merge("finalizer by way of the status", a+"/status", `{"metadata":{`+finalizer1+`}}`),
			merge("label by way of the status", a+"/status", `{"metadata":{"labels":{"x":"1"}}}`),
			merge("status of what does not exist", kind+"/b/status", body),
		}}, script{of(kind, "status of what is terminating"), []step{
			post("create with a finalizer", kind, "a", finalizer1),
			del("delete", a, ``),
			merge("change the status", a+"/status", body),
			merge("remove the last finalizer by way of the status", a+"/status",
				`{"metadata":{"finalizers":null},"status":null}`),
			merge("remove the last finalizer", a, `{"metadata":{"finalizers":null}}`),
		}})
	}
	return all
}

// scaleScripts are about the scale subresource.
func scaleScripts() (all []script) {
	for _, kind := range []string{"deploy", "rs", "things"} {
		a := kind + "/a/scale"
		scale := func(what, metadata string, replicas int) step {
			return step{name: what, method: "PUT", path: a, contentType: "application/json", body: fmt.Sprintf(
				`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{%s"name":"a","namespace":"$NS"},`+
					`"spec":{"replicas":%d}}`, metadata, replicas)}
		}
		all = append(all, script{of(kind, "scale"), []step{
			post("create", kind, "a", `"labels":{"in":"yes"}`),
			get("read the scale", a),
			scale("replace the scale at the right version", `"resourceVersion":"{{a.rv}}",`, 1),
			scale("replace the scale, and change nothing", ``, 1),
			scale("replace the scale without a version", ``, 2),
			scale("replace the scale at an older version", `"resourceVersion":"{{a.rv1}}",`, 3),
			scale("replace the scale of another UID", `"uid":"`+wrongUID+`",`, 3),
			scale("replace the scale by what is invalid", ``, -1),
			merge("change the scale by a merge patch", a, `{"spec":{"replicas":3}}`),
			merge("merge patch that changes nothing", a, `{"spec":{"replicas":3}}`),
			jsonPatch("change the scale by a JSON patch", a, `[{"op":"replace","path":"/spec/replicas","value":4}]`),
			merge("dry run", a+"?dryRun=All", `{"spec":{"replicas":5}}`),
			merge("scale of what does not exist", kind+"/b/scale", `{"spec":{"replicas":3}}`),
			merge("add a finalizer", kind+"/a", `{"metadata":{`+finalizer1+`}}`),
			del("delete", kind+"/a", ``),
			merge("change the scale of what is terminating", a, `{"spec":{"replicas":0}}`),
			merge("remove the last finalizer by way of the scale", a, `{"metadata":{"finalizers":null}}`),
			merge("remove the last finalizer", kind+"/a", `{"metadata":{"finalizers":null}}`),
		}})
	}
	return all
}

// podScripts are about grace periods, evictions, bindings and other subresources of pods.
func podScripts() []script {
	evict := func(what, inside string) step {
		return step{name: what, method: "POST", path: "pods/a/eviction", contentType: "application/json",
			body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a","namespace":"$NS"}` +
				inside + `}`}
	}
	bind := func(what, path, metadata string) step {
		return step{name: what, method: "POST", path: path, contentType: "application/json",
			body: `{"apiVersion":"v1","kind":"Binding","metadata":{` + metadata + `"name":"a","namespace":"$NS"},` +
				`"target":{"kind":"Node","name":"n"}}`}
	}
	const a, none = "pods/a", `{"gracePeriodSeconds":0}`
	bound := post("create on a node", "bound", "a", ``)
	pending := post("create", "pods", "a", `"labels":{"a":"b"}`)
	return []script{
		{"Pod with a node: grace period", []step{bound,
			del("delete", a, ``),
			del("delete once more", a, ``),
			del("delete with the same grace period", a, `{"gracePeriodSeconds":30}`),
			del("delete with a longer grace period", a, `{"gracePeriodSeconds":60}`),
			del("delete with a shorter grace period", a, `{"gracePeriodSeconds":20}`),
			merge("change what is terminating", a, `{"metadata":{"labels":{"x":"1"}}}`),
			merge("change the status of what is terminating", a+"/status", `{"status":{"phase":"Succeeded"}}`),
			merge("add a finalizer to what is terminating", a, `{"metadata":{`+finalizer1+`}}`),
			evict("evict what is terminating", ``),
			del("delete without a grace period, another UID", a,
				`{"gracePeriodSeconds":0,"preconditions":{"uid":"`+wrongUID+`"}}`),
			del("dry run of a deletion without a grace period", a, `{"gracePeriodSeconds":0,"dryRun":["All"]}`),
			del("delete without a grace period", a, none),
			post("create under the same name", "bound", "a", ``)}},
		{"Pod with a node: deleted without a grace period", []step{bound, del("delete", a, none)}},
		{"Pod with a node: deleted with a grace period of one second", []step{bound,
			del("delete with a grace period of one second", a, `{"gracePeriodSeconds":1}`),
			del("delete without a grace period, by the query", a+"?gracePeriodSeconds=0", ``)}},
		{"Pod with a node: terminating, finalizer removed in the grace period", []step{
			post("create on a node, with a finalizer", "bound", "a", finalizer1),
			del("delete", a, ``),
			merge("merge patch removes the last finalizer in the grace period", a,
				`{"metadata":{"finalizers":null}}`),
			get("read the object", a),
			del("delete without a grace period", a, none)}},
		{"Pod with a node: terminating, grace period ends before the finalizer is removed", []step{
			post("create on a node, with a finalizer", "bound", "a", finalizer1),
			del("delete", a, ``),
			del("delete without a grace period", a, none),
			del("delete without a grace period once more", a, none),
			del("delete with a grace period once more", a, `{"gracePeriodSeconds":30}`),
			put("PUT removes the last finalizer", "bound", a, `"resourceVersion":"{{a.rv}}"`)}},
		{"Pod with a node: in the foreground, with a grace period", []step{bound,
			del("delete with propagation Foreground", a, `{"propagationPolicy":"Foreground"}`),
			merge("the garbage collector removes its finalizer in the grace period", a,
				`{"metadata":{"finalizers":null}}`),
			del("delete without a grace period", a, none)}},
		{"Pod with a node: it has ended", []step{bound,
			merge("it ends", a+"/status", `{"status":{"phase":"Succeeded"}}`),
			del("delete", a, ``)}},
		{"Pod with a node: evicted", []step{bound,
			evict("evict another UID", `,"deleteOptions":{"preconditions":{"uid":"`+wrongUID+`"}}`),
			evict("dry run of an eviction", `,"deleteOptions":{"dryRun":["All"]}`),
			evict("dry run of an eviction, by the query", ``).at("pods/a/eviction?dryRun=All"),
			evict("evict", ``),
			evict("evict once more", ``),
			evict("evict without a grace period", `,"deleteOptions":`+none),
			evict("evict what is gone", ``)}},
		{"Pod: evicted", []step{pending, evict("evict", ``)}},
		{"Pod: evicted, with a finalizer", []step{
			post("create with a finalizer", "pods", "a", finalizer1), evict("evict", ``), evict("evict once more", ``),
			merge("remove the last finalizer", a, `{"metadata":{"finalizers":null}}`)}},
		{"Pod with a node: eviction refused by a PodDisruptionBudget", []step{
			post("create a PodDisruptionBudget", "pdb", "d", ``),
			post("create on a node", "bound", "a", `"labels":{"a":"b"}`),
			merge("it runs", a+"/status",
				`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`),
			evict("evict", ``),
			post("create another PodDisruptionBudget for the same pod", "pdb", "e", ``),
			evict("evict", ``)}},
		{"Pod: bound", []step{pending,
			bind("bind another UID", "pods/a/binding", `"uid":"`+wrongUID+`",`),
			bind("dry run", "pods/a/binding?dryRun=All", ``),
			bind("bind", "pods/a/binding", ``),
			bind("bind once more", "pods/a/binding", ``)}},
		{"Pod: bound by way of the collection of bindings", []step{pending, bind("bind", "bind", ``)}},
		{"Pod: bound while terminating, and when it is gone", []step{
			post("create with a finalizer", "pods", "a", finalizer1),
			del("delete", a, ``),
			bind("bind what is terminating", "pods/a/binding", ``),
			merge("remove the last finalizer", a, `{"metadata":{"finalizers":null}}`),
			bind("bind what is gone", "pods/a/binding", ``)}},
		{"Pod: ephemeral containers", []step{pending,
			merge("add an ephemeral container", a+"/ephemeralcontainers",
				`{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`)}},
	}
}

// namespaceScripts are about namespaces, which have finalizers in their spec as well. What the controller of namespaces
// does in the end is a step.
func namespaceScripts() []script {
	const a = "ns/$NS-a"
	finalize := func(what, spec string) step {
		return step{name: what, method: "PUT", path: a + "/finalize", contentType: "application/json",
			body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"$NS-a"},"spec":` + spec + `}`}
	}
	return []script{
		{"Namespace: created, changed and deleted", []step{
			post("create", "ns", "$NS-a", `"labels":{"in":"yes"}`),
			post("create what exists", "ns", "$NS-a", ``),
			merge("change by a merge patch", a, `{"metadata":{"labels":{"x":"1"}}}`),
			put("replace, and change nothing", "ns", a, `"resourceVersion":"{{a.rv}}","labels":{"in":"yes","x":"1"}`),
			put("replace at an older version", "ns", a, `"resourceVersion":"{{a.rv1}}"`),
			del("dry run of a deletion", a+"?dryRun=All", ``),
			del("delete", a, ``),
			del("delete once more", a, ``),
			del("delete without a grace period", a, `{"gracePeriodSeconds":0}`),
			merge("change what is terminating", a, `{"metadata":{"labels":{"x":"2"}}}`),
			finalize("replace the finalizers of the spec by other ones", `{"finalizers":["example.com/one"]}`),
			finalize("remove the last finalizer of the spec", `{}`),
			get("read what is gone", a),
			post("create under the same name", "ns", "$NS-a", ``)}},
		{"Namespace: finalizers of both kinds, that of the spec removed first", []step{
			post("create with a finalizer", "ns", "$NS-a", finalizer1),
			del("delete", a, ``),
			finalize("remove the last finalizer of the spec", `{}`),
			merge("remove the last finalizer", a, `{"metadata":{"finalizers":null}}`),
			get("read the object", a)}},
		{"Namespace: finalizers of both kinds, that of the spec removed last", []step{
			post("create with a finalizer", "ns", "$NS-a", finalizer1),
			del("delete", a, ``),
			merge("remove the last finalizer of the metadata", a, `{"metadata":{"finalizers":null}}`),
			finalize("remove the last finalizer of the spec", `{}`),
			get("read the object", a)}},
		{"Namespace: in the foreground", []step{
			post("create", "ns", "$NS-a", ``),
			del("delete with propagation Foreground", a, `{"propagationPolicy":"Foreground"}`),
			finalize("remove the last finalizer of the spec", `{}`),
			merge("the garbage collector removes its finalizer", a, `{"metadata":{"finalizers":null}}`)}},
	}
}
