package reconciletest

import "strings"

// conversation is a case of the corpus.
type conversation struct {
	name  string
	steps []step
}

// corpus is the list of requests that both servers answer. Each case has a namespace of its own.
var corpus = []conversation{
	{"create", []step{post("cm", "a", `"data":{"x":"1"}`), get("cm/a")}},
	{"create what exists", []step{post("cm", "a", ``), post("cm", "a", `"data":{"x":"1"}`), get("cm/a")}},
	{"create with a generated name", []step{post("cm", "", `"metadata":{"generateName":"gen-"}`)}},
	{"create without a name", []step{post("cm", "", ``)}},
	{"create with a bad name", []step{post("cm", "A_b", ``)}},
	{"create with a resourceVersion", []step{post("cm", "a", `"metadata":{"resourceVersion":"5"}`), get("cm/a")}},
	{"create with what only the server says", []step{post("cm", "a",
		`"metadata":{"uid":"11111111-1111-4111-8111-111111111111","creationTimestamp":"2001-01-01T00:00:00Z",`+
			`"generation":7,"deletionTimestamp":"2001-01-01T00:00:00Z","selfLink":"/x"}`)}},
	{"create in another namespace than that of the path",
		[]step{post("cm", "a", `"metadata":{"namespace":"elsewhere"}`)}},
	{"create in no namespace", []step{request("POST", "api/v1/namespaces/nowhere-at-all/configmaps", "application/json",
		bodyOf("cm", "a", ``))}},
	{"create of another kind", []step{request("POST", "cm", "application/json", bodyOf("secrets", "a", ``))}},
	{"create of another version", []step{request("POST", "rs", "application/json",
		`{"apiVersion":"apps/v9","kind":"ReplicaSet","metadata":{"name":"a"}}`)}},
	{"create with a field of the wrong type", []step{post("cm", "a", `"data":{"x":1}`), post("cm", "a", ``),
		put("cm/a", `"immutable":"x"`)}},
	{"create from what is no JSON", []step{request("POST", "cm", "application/json", `{"metadata":`)}},
	{"questions about rights that are wrong", []step{
		review("SelfSubjectAccessReview", ``),
		review("SelfSubjectAccessReview", `"resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"path":"/x"}`),
		review("SubjectAccessReview", `"user":"x"`), review("SubjectAccessReview", ``),
		review("SubjectAccessReview", `"resourceAttributes":{"verb":"get"}`)}},
	{"create as a dry run", []step{post("cm?dryRun=All", "a", `"data":{"x":"1"}`), get("cm/a")}},
	{"create as a dry run of what exists", []step{post("cm", "a", ``), post("cm?dryRun=All", "a", ``)}},
	{"dry run of another kind", []step{post("cm?dryRun=Some", "a", ``)}},
	{"create with a manager", []step{post("cm?fieldManager=me", "a", `"data":{"x":"1"}`)}},
	{"create with bad labels", []step{post("cm", "a", `"metadata":{"labels":{"a b":"c"}}`)}},
	{"create with two controllers", []step{post("cm", "a", `"metadata":{"ownerReferences":[
		{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1","controller":true},{"apiVersion":"v1",
			"kind":"ConfigMap","name":"y","uid":"2","controller":true}]}`)}},

	{"get what is not there", []step{get("cm/a"), get("gadgets/a")}},
	{"get at a version", []step{post("cm", "a", ``), get("cm/a?resourceVersion={{a.rv}}"),
		get("cm/a?resourceVersion=0")}}, // in this order: a real cache may lag
	{"get at a version that is no number", []step{post("cm", "a", ``), get("cm/a?resourceVersion=x")}},
	{"get at a version to come", []step{post("cm", "a", ``), get("cm/a?resourceVersion=999999999")}},

	{"update", []step{post("cm", "a", `"data":{"x":"1"}`),
		put("cm/a", `"metadata":{"resourceVersion":"{{a.rv}}"},"data":{"x":"2"}`)}},
	{"update at an older version", []step{
		post("cm", "a", ``), merge("cm/a", `{"data":{"x":"1"}}`),
		put("cm/a", `"metadata":{"resourceVersion":"{{a.rv1}}"},"data":{"x":"2"}`), get("cm/a")}},
	{"update without a version", []step{post("cm", "a", ``), put("cm/a", `"data":{"x":"2"}`)}},
	{"update without a version where one is needed", []step{
		post("gadgets", "a", ``), put("gadgets/a", `"spec":{"x":2}`), post("leases", "l", ``),
		put("leases/l", `"spec":{"holderIdentity":"me"}`), post("sa", "s", ``),
		put("sa/s", `"metadata":{"labels":{"x":"y"}}`)}},
	{"update that changes nothing", []step{
		post("cm", "a", `"data":{"x":"1"}`), put("cm/a", `"metadata":{"resourceVersion":"{{a.rv}}"},"data":{"x":"1"}`),
		put("cm/a", `"data":{"x":"1"}`), get("cm/a")}},
	{"update of what is not there", []step{put("cm/a", ``), put("gadgets/a", `"metadata":{"resourceVersion":"1"}`),
		put("leases/l", `"spec":{"holderIdentity":"me"}`)}},
	{"update of another UID", []step{post("cm", "a", ``),
		put("cm/a", `"metadata":{"uid":"11111111-1111-4111-8111-111111111111"},"data":{"x":"2"}`)}},
	{"update of another name", []step{post("cm", "a", ``),
		request("PUT", "cm/a", "application/json", bodyOf("cm", "b", ``))}},
	{"update as a dry run", []step{post("cm", "a", ``), put("cm/a?dryRun=All", `"data":{"x":"2"}`), get("cm/a")}},
	{"update with what only the server says", []step{post("cm", "a", ``),
		put("cm/a", `"metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","generation":7,`+
			`"deletionTimestamp":"2001-01-01T00:00:00Z"},"data":{"x":"2"}`), get("cm/a")}},
	{"immutable ConfigMap", []step{post("cm", "a", `"immutable":true,"data":{"x":"1"}`),
		merge("cm/a", `{"data":{"x":"2"}}`), merge("cm/a", `{"metadata":{"labels":{"x":"y"}}}`),
		merge("cm/a", `{"immutable":false}`)}},
	{"keys of data", []step{
		post("cm", "a", `"data":{"x y":"1"}`), post("cm", "a", `"data":{"..":"1"},"binaryData":{"x/y":"MQ=="}`),
		post("cm", "a", `"data":{"x":"1"},"binaryData":{"x":"MQ=="}`),
		post("cm", "a", `"data":{"x":"1"},"binaryData":{"y":"MQ=="}`), post("secrets", "a", `"stringData":{"x y":"1"}`),
		post("secrets", "a", `"data":{"x":"MQ=="},"type":"mine"`)}},
	{"too much data", []step{request("POST", "cm", "application/json",
		bodyOf("cm", "a", `"data":{"x":"`+strings.Repeat("x", 1<<20+1)+`"}`))}},
	{"type of a Secret", []step{post("secrets", "a", `"stringData":{"x":"1"}`), merge("secrets/a", `{"type":"other"}`),
		get("secrets/a")}},

	{"generation of a ReplicaSet", []step{
		post("rs", "a", workload(0)), merge("rs/a", `{"spec":{"replicas":1}}`),
		merge("rs/a", `{"metadata":{"labels":{"x":"y"}}}`), merge("rs/a", `{"spec":{"replicas":1}}`),
		merge("rs/a", `{"metadata":{"annotations":{"x":"y"}}}`), merge("rs/a/status", `{"status":{"replicas":1}}`)}},
	{"generation of a Deployment", []step{
		post("deploy", "a", `"metadata":{"labels":{"l":"1"}},`+pausedWorkload),
		merge("deploy/a", `{"spec":{"replicas":2}}`), merge("deploy/a", `{"metadata":{"annotations":{"x":"y"}}}`),
		merge("deploy/a", `{"metadata":{"labels":{"x":"y"}}}`)}},
	{"generation of a custom resource", []step{
		post("gadgets", "a", `"spec":{"x":1},"status":{"y":1}`), merge("gadgets/a", `{"spec":{"x":2}}`),
		merge("gadgets/a", `{"metadata":{"labels":{"x":"y"}}}`),
		merge("gadgets/a", `{"status":{"y":2}}`), merge("gadgets/a", `{"other":3}`),
		merge("gadgets/a/status", `{"status":{"y":3},"spec":{"x":5},"metadata":{"labels":{"z":"z"}}}`)}},
	{"generation of a custom resource without status", []step{
		post("plain", "a", `"spec":{"x":1},"status":{"y":1}`), merge("plain/a", `{"status":{"y":2}}`),
		merge("plain/a/status", `{"status":{"y":3}}`), get("plain/a/status")}},
	{"generation of a StatefulSet", []step{post("sts", "a", `"spec":{"serviceName":"s",`+specOf(0)[1:]),
		merge("sts/a", `{"spec":{"serviceName":"t"}}`)}},
	{"a selector does not change", []step{post("rs", "a", workload(0)),
		merge("rs/a", `{"spec":{"selector":{"matchLabels":{"app":"b"}},`+
			`"template":{"metadata":{"labels":{"app":"b"}}}}}`)}},
	{"a selector has to match", []step{post("rs", "a",
		`"spec":{"selector":{"matchLabels":{"app":"b"}},"template":{"metadata":{"labels":{"app":"a"}},`+
			`"spec":{"containers":[{"name":"c","image":"i"}]}}}`), post("rs", "b", `"spec":{}`)}},

	{"a selector has to be one", []step{
		post("rs", "a", `"spec":{"selector":{"matchExpressions":[{"key":"app","operator":"Sometimes"}]},`+
			`"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`),
		post("rs", "b", `"spec":{"selector":{"matchExpressions":[{"key":"app","operator":"In"}]},`+
			`"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`),
		post("rs", "c", `"spec":{"selector":{},"template":{"metadata":{"labels":{"app":"a"}},`+
			`"spec":{"containers":[{"name":"c","image":"i"}]}}}`)}},
	{"numbers below zero", []step{post("rs", "a",
		strings.Replace(workload(0), `"replicas":0`, `"replicas":-1,"minReadySeconds":-2`, 1))}},
	{"labels of a template", []step{
		post("rs", "a", `"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a",`+
			`"x y":"z"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`),
		post("rs", "b", `"spec":{"selector":{"matchLabels":{"app":"a"}},`+
			`"template":{"metadata":{"labels":{"app":"a"},"annotations":{"x y":"z"}},`+
			`"spec":{"containers":[{"name":"c","image":"i"}]}}}`)}},
	{"counts that cannot be", []step{
		post("rs", "a", workload(0)), merge("rs/a/status", `{"status":{"replicas":1,"readyReplicas":2}}`),
		merge("rs/a/status", `{"status":{"replicas":2,"readyReplicas":1,"availableReplicas":2}}`),
		merge("rs/a/status", `{"status":{"replicas":1,"fullyLabeledReplicas":2}}`),
		merge("rs/a/status", `{"status":{"replicas":-1}}`),
		merge("rs/a/status", `{"status":{"replicas":2,"fullyLabeledReplicas":2,"readyReplicas":2,`+
			`"availableReplicas":1,"terminatingReplicas":1}}`)}},

	{"status is ignored at creation", []step{post("gadgets", "a", `"status":{"y":1}`),
		post("rs", "b", workload(0)+`,"status":{"replicas":5}`)}},
	{"status by itself", []step{
		post("gadgets", "a", `"spec":{"x":1}`),
		put("gadgets/a/status", `"metadata":{"resourceVersion":"{{a.rv}}","labels":{"l":"m"}},"spec":{"x":9},`+
			`"status":{"y":1}`),
		put("gadgets/a", `"metadata":{"resourceVersion":"{{a.rv}}"},"spec":{"x":2},"status":{"y":9}`),
		get("gadgets/a/status")}},
	{"status at an older version", []step{post("gadgets", "a", ``), merge("gadgets/a", `{"spec":{"x":1}}`),
		put("gadgets/a/status", `"metadata":{"resourceVersion":"{{a.rv1}}"},"status":{"y":1}`)}},
	{"status that changes nothing", []step{post("gadgets", "a", ``), merge("gadgets/a/status", `{"status":{"y":1}}`),
		merge("gadgets/a/status", `{"status":{"y":1}}`)}},
	{"status of a pod with labels", []step{
		post("pods", "p", pod("")), merge("pods/p/status",
			`{"metadata":{"labels":{"x":"y"}},"status":{"phase":"Failed"}}`),
		merge("pods/p", `{"status":{"phase":"Running"}}`)}},
	{"status of what is not there", []step{merge("gadgets/a/status", `{"status":{}}`),
		put("gadgets/a/status", `"status":{}`)}},
	{"status of a kind that has none", []step{merge("cm/a/status", `{}`)}},

	{"JSON patch", []step{
		post("cm", "a", `"data":{"x":"1"}`),
		jsonPatch("cm/a", `[{"op":"test","path":"/data/x","value":"1"},{"op":"replace","path":"/data/x",`+
			`"value":"2"},{"op":"add","path":"/metadata/labels","value":{"l":"m"}}]`)}},
	{"JSON patch whose test fails", []step{post("cm", "a", `"data":{"x":"1"}`),
		jsonPatch("cm/a", `[{"op":"test","path":"/data/x","value":"7"}]`),
		jsonPatch("cm/a", `[{"op":"remove","path":"/data/y"}]`)}},
	{"JSON patch that is none", []step{post("cm", "a", ``), jsonPatch("cm/a", `{"op":"test"}`),
		jsonPatch("cm/a", `[{"op`)}},
	{"JSON patch of a missing list", []step{post("gadgets", "a", ``),
		jsonPatch("gadgets/a", `[{"op":"test","path":"/metadata/uid","value":"{{a.uid}}"},{"op":"test",`+
			`"path":"/metadata/finalizers","value":null},{"op":"add","path":"/metadata/finalizers",`+
			`"value":["example.com/f"]}]`)}},
	{"merge patch", []step{post("cm", "a", `"data":{"x":"1","y":"2"}`), merge("cm/a", `{"data":{"x":null,"z":"3"}}`),
		merge("cm/a", `{"metadata":{"resourceVersion":"{{a.rv1}}"},"data":{"x":"4"}}`), merge("cm/a", `[]`),
		merge("cm/a", `{"data":5}`)}},
	{"merge patch of another UID", []step{post("cm", "a", ``),
		merge("cm/a", `{"metadata":{"uid":"11111111-1111-4111-8111-111111111111"}}`),
		merge("cm/a", `{"metadata":{"name":"b"}}`)}},
	{"merge patch of what is not there", []step{merge("cm/a", `{}`), jsonPatch("cm/a", `[]`), strategic("cm/a", `{}`)}},
	{"strategic merge patch", []step{
		post("rs", "a", workload(0)), strategic("rs/a",
			`{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"j:1"}]}}}}`),
		strategic("rs/a", `{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"c"}]}}}}`),
		strategic("rs/a", `{"metadata":{"finalizers":["example.com/f"]}}`),
		strategic("rs/a", `{"metadata":{"finalizers":["example.com/g"]}}`),
		strategic("rs/a", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/f","example.com/g"]}}`)}},
	{"strategic merge patch of a custom resource", []step{post("gadgets", "a", ``), strategic("gadgets/a", `{}`)}},
	{"patch of an unknown type", []step{post("cm", "a", ``), request("PATCH", "cm/a", "application/json", `{}`)}},
	{"patch that changes nothing", []step{post("cm", "a", `"data":{"x":"1"}`), merge("cm/a", `{"data":{"x":"1"}}`),
		strategic("cm/a", `{}`), jsonPatch("cm/a", `[]`)}},

	{"apply", []step{
		apply("cm/a?fieldManager=one", `"data":{"x":"1","y":"1"}`),
		apply("cm/a?fieldManager=one", `"data":{"x":"1","y":"1"}`), apply("cm/a?fieldManager=two", `"data":{"z":"2"}`),
		apply("cm/a?fieldManager=one", `"data":{"x":"3"}`)}},
	{"apply with a conflict", []step{
		apply("cm/a?fieldManager=one", `"data":{"x":"1"}`), apply("cm/a?fieldManager=two", `"data":{"x":"2"}`),
		apply("cm/a?fieldManager=two&force=true", `"data":{"x":"2"}`), apply("cm/a?fieldManager=one", `"data":{}`)}},
	{"apply against an update", []step{post("cm?fieldManager=old", "a", `"data":{"x":"1"}`),
		apply("cm/a?fieldManager=new", `"data":{"x":"2"}`), apply("cm/a?fieldManager=new", `"data":{"x":"1"}`)}},
	{"apply without a manager", []step{apply("cm/a", `"data":{"x":"1"}`)}},
	{"apply with a version", []step{post("cm", "a", ``),
		apply("cm/a?fieldManager=one", `"metadata":{"resourceVersion":"1"},"data":{"x":"1"}`),
		apply("cm/a?fieldManager=one", `"metadata":{"uid":"11111111-1111-4111-8111-111111111111"},"data":{"x":"1"}`)}},
	{"apply of a custom resource", []step{
		apply("gadgets/a?fieldManager=one", `"spec":{"list":[1,2],"x":1}`),
		apply("gadgets/a?fieldManager=two", `"spec":{"list":[1,2,3]}`),
		apply("gadgets/a?fieldManager=two", `"spec":{"y":1}`),
		apply("gadgets/a/status?fieldManager=two", `"status":{"ok":true}`),
		apply("gadgets/a?fieldManager=one", `"spec":{}`)}},
	{"apply of a list by key", []step{
		apply("rs/a?fieldManager=one", workload(0)),
		apply("rs/a?fieldManager=two", `"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i:1",`+
			`"env":[{"name":"E","value":"1"}]}]}}}`),
		apply("rs/a?fieldManager=three", `"spec":{"template":{"spec":{"containers":[{"name":"c",`+
			`"image":"other:1"}]}}}`)}},
	{"apply as a dry run", []step{apply("cm/a?fieldManager=one&dryRun=All", `"data":{"x":"1"}`), get("cm/a")}},
	{"apply as a dry run to what another has changed", []step{
		apply("deploy/a?fieldManager=one", pausedWorkload), merge("deploy/a/scale", `{"spec":{"replicas":2}}`),
		strategic("deploy/a", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"other:1"}]}}}}`),
		apply("deploy/a?fieldManager=one&dryRun=All", pausedWorkload),
		apply("deploy/a?fieldManager=one&force=true&dryRun=All", pausedWorkload), get("deploy/a"),
		apply("deploy/a?fieldManager=one&force=true", pausedWorkload),
		apply("deploy/a?fieldManager=one&force=true&dryRun=All", pausedWorkload),
		apply("gadgets/a?fieldManager=one", `"spec":{"x":1}`), merge("gadgets/a", `{"spec":{"x":2,"y":3}}`),
		apply("gadgets/a?fieldManager=one&dryRun=All", `"spec":{"x":1}`),
		apply("gadgets/a?fieldManager=one&force=true&dryRun=All", `"spec":{"x":1}`), get("gadgets/a")}},
	{"apply to the status of what is not there",
		[]step{apply("gadgets/a/status?fieldManager=one", `"status":{"ok":true}`)}},

	{"delete", []step{post("cm", "a", ``), del("cm/a", ``), get("cm/a"), del("cm/a", ``)}},
	{"delete of a custom resource", []step{post("gadgets", "a", ``), del("gadgets/a", ``)}},
	{"delete that returns the object", []step{post("sa", "a", ``), del("sa/a", ``)}},
	{"delete with preconditions", []step{
		post("cm", "a", ``), del("cm/a", `{"preconditions":{"uid":"11111111-1111-4111-8111-111111111111"}}`),
		del("cm/a", `{"preconditions":{"resourceVersion":"1"}}`),
		del("cm/a", `{"preconditions":{"uid":"{{a.uid}}","resourceVersion":"{{a.rv}}"}}`)}},
	{"delete with a finalizer", []step{
		post("gadgets", "a", `"metadata":{"finalizers":["example.com/f","example.com/g"]}`), del("gadgets/a", ``),
		del("gadgets/a", ``), merge("gadgets/a", `{"spec":{"x":1}}`),
		merge("gadgets/a", `{"metadata":{"finalizers":["example.com/f","example.com/h"]}}`),
		merge("gadgets/a", `{"metadata":{"finalizers":["example.com/f"]}}`),
		merge("gadgets/a", `{"metadata":{"finalizers":null}}`), get("gadgets/a")}},
	{"delete as a dry run", []step{post("cm", "a", ``), del("cm/a?dryRun=All", ``), get("cm/a"),
		post("gadgets", "b", `"metadata":{"finalizers":["example.com/f"]}`), del("gadgets/b?dryRun=All", ``),
		get("gadgets/b")}},
	{"delete a pod that runs nowhere", []step{post("pods", "p", pod("")),
		watching("w", "pods?resourceVersion={{p.rv}}"), del("pods/p", ``), get("pods/p"), events("w", 2)}},
	{"delete a pod in two steps", []step{
		post("pods", "p", pod("no-such-node")), watching("w", "pods?resourceVersion={{p.rv}}"), del("pods/p", ``),
		del("pods/p", ``), del("pods/p", `{"gracePeriodSeconds":60}`),
		del("pods/p", `{"gracePeriodSeconds":0}`), get("pods/p"), events("w", 2)}},
	{"delete with a bad policy", []step{post("cm", "a", ``), del("cm/a", `{"propagationPolicy":"Sometimes"}`),
		del("cm/a", `{"propagationPolicy":"Background","orphanDependents":true}`), del("cm/a", `{`)}},
	{"delete by the query", []step{post("gadgets", "a", `"metadata":{"finalizers":["example.com/f"]}`),
		del("gadgets/a?orphanDependents=false", ``)}},
	{"delete a collection", []step{
		post("secrets", "a", `"metadata":{"labels":{"l":"1"}}`),
		post("secrets", "b", `"metadata":{"labels":{"l":"2"}}`), del("secrets?labelSelector=l%3D1", ``),
		get("secrets/a"), get("secrets/b")}},

	{"no owner left", []step{
		post("cm", "o", ``), post("cm", "d", owned("o", "")), del("cm/o", `{"propagationPolicy":"Background"}`),
		until(404, "cm/d")}},
	{"an owner that never was", []step{post("cm", "d", ownerless), until(404, "cm/d")}},
	{"claims", []step{post("pvc", "c", claim(``)), raw("DELETE", "pvc/c", "application/json", "application/json", ""),
		until(404, "pvc/c")}},
	{"orphans", []step{
		post("cm", "o", ``), post("cm", "d", owned("o", "")), post("cm", "probe", ownerless), until(404, "cm/probe"),
		del("cm/o", `{"propagationPolicy":"Orphan"}`), until(404, "cm/o"), get("cm/d")}},
	{"dependents first", []step{
		post("cm", "o", ``), post("cm", "d", owned("o", `,"blockOwnerDeletion":true`)), post("cm", "probe", ownerless),
		until(404, "cm/probe"), del("cm/o", `{"propagationPolicy":"Foreground"}`), until(404, "cm/o"), get("cm/d")}},
	{"dependents first, that cannot go", []step{
		post("cm", "o", ``), post("cm", "d",
			`"metadata":{"finalizers":["example.com/f"],`+
				owned("o", `,"blockOwnerDeletion":true`)[len(`"metadata":{`):]), post("cm", "probe", ownerless),
		until(404, "cm/probe"),
		watching("w", "cm?resourceVersion={{probe.rv}}"), events("w", 1),
		del("cm/o", `{"propagationPolicy":"Foreground"}`), events("w", 2), get("cm/o"),
		merge("cm/d", `{"metadata":{"finalizers":null}}`), until(404, "cm/o")}},
	{"one of two owners left", []step{
		post("cm", "o", ``), post("cm", "n", ``),
		post("cm", "d", `"metadata":{"ownerReferences":[`+referenceTo("o", "")+`,`+referenceTo("n", "")+`]}`),
		post("cm", "probe", ownerless), until(404, "cm/probe"),
		watching("w", "cm?fieldSelector=metadata.name%3Dd&resourceVersion={{d.rv}}"),
		del("cm/o", `{"propagationPolicy":"Foreground"}`), until(404, "cm/o"), events("w", 1)}},

	{"namespaces", []step{
		post("ns", "$NS-x", ``), put("ns/NS-x", `"metadata":{"labels":{"x":"y"}}`), del("ns/NS-x?dryRun=All", ``),
		del("ns/NS-x", ``), until(404, "ns/NS-x"), get("ns?fieldSelector=metadata.name%3D$NS-x")}},
	{"namespaces that somebody keeps", []step{
		post("ns", "$NS-x", `"spec":{"finalizers":["example.com/f"]}`), get("ns/NS-x"),
		post("ns", "$NS-y", `"spec":{"finalizers":["example.com/f/g"]}`),
		post("ns", "$NS-y", `"spec":{"finalizers":["mine"]}`),
		put("ns/NS-x/finalize", `"spec":{"finalizers":["mine"]}`),
		put("ns/NS-x/finalize", `"spec":{"finalizers":["kubernetes","example.com/g"]}`), del("ns/NS-x", ``),
		put("ns/NS-x/finalize", ``), until(404, "ns/NS-x")}},
	{"phases of namespaces", []step{post("ns", "$NS-x", ``),
		merge("ns/NS-x/status", `{"status":{"phase":"Terminating"}}`), del("ns/NS-x", ``)}},

	{"list", []step{post("secrets", "b", `"metadata":{"labels":{"l":"1"}}`),
		post("secrets", "a", `"metadata":{"labels":{"l":"2"}}`), get("secrets"), get("secrets?labelSelector=l%3D1"),
		get("secrets?labelSelector=l+in+(1,2)"),
		get("secrets?fieldSelector=metadata.name%3Da"), get("secrets?fieldSelector=type%3DOpaque"),
		get("secrets?fieldSelector=type%21%3DOpaque")}},
	{"list of custom resources", []step{post("gadgets", "b", ``), post("gadgets", "a", ``), get("gadgets"),
		get("gadgets?fieldSelector=metadata.name%3Da")}},
	{"list with bad selectors", []step{get("secrets?labelSelector=a%3D%3D%3Db"),
		get("secrets?fieldSelector=data.x%3D1"), get("gadgets?fieldSelector=spec.x%3D1")}},
	{"list in pages", []step{
		post("secrets", "a", ``), post("secrets", "b", ``), post("secrets", "c", ``), get("secrets?limit=2"),
		post("secrets", "bb", ``), del("secrets/c", ``), get("secrets?limit=2&continue={{continue}}"),
		get("secrets?limit=2")}},
	{"list in pages with a selector", []step{
		post("secrets", "a", `"metadata":{"labels":{"l":"1"}}`), post("secrets", "b", ``),
		post("secrets", "c", `"metadata":{"labels":{"l":"1"}}`), get("secrets?limit=1&labelSelector=l%3D1"),
		get("secrets?limit=1&labelSelector=l%3D1&continue={{continue}}")}},
	{"list with a bad token", []step{get("secrets?limit=2&continue=x"), get("secrets?limit=2&continue=e30"),
		post("secrets", "a", ``), post("secrets", "b", ``), get("secrets?limit=1"),
		get("secrets?limit=1&resourceVersion=5&continue={{continue}}")}},
	{"list at versions", []step{
		post("secrets", "a", ``), merge("secrets/a", `{"metadata":{"labels":{"x":"y"}}}`),
		get("secrets?resourceVersion={{a.rv1}}&resourceVersionMatch=Exact"),
		get("secrets?resourceVersion={{a.rv}}&resourceVersionMatch=NotOlderThan"),
		get("secrets?resourceVersion={{a.rv1}}&limit=5")}},
	{"list with bad versions", []step{
		get("secrets?resourceVersionMatch=Exact"), get("secrets?resourceVersion=0&resourceVersionMatch=Exact"),
		get("secrets?resourceVersion=5&resourceVersionMatch=Most"), get("secrets?resourceVersion=x"),
		get("secrets?sendInitialEvents=true")}},
	{"list at a version to come", []step{get("secrets?resourceVersion=999999999"),
		get("secrets?resourceVersion=999999999&resourceVersionMatch=Exact")}},

	{"watch", []step{
		post("secrets", "a", ``), watching("w", "secrets?resourceVersion={{a.rv}}"),
		merge("secrets/a", `{"metadata":{"labels":{"x":"y"}}}`), post("secrets", "b", ``),
		merge("secrets/a", `{"metadata":{"labels":{"x":"y"}}}`), del("secrets/a", ``), events("w", 3)}},
	{"watch from now on", []step{post("secrets", "a", ``), watching("w", "secrets"), events("w", 1),
		post("secrets", "b", ``), events("w", 1)}},
	{"watch from the past", []step{post("secrets", "a", ``), post("secrets", "b", ``), del("secrets/a", ``),
		watching("w", "secrets?resourceVersion={{a.rv}}"), events("w", 2)}},
	{"watch with a selector", []step{
		post("secrets", "a", `"metadata":{"labels":{"l":"1"}}`),
		watching("w", "secrets?labelSelector=l%3D1&resourceVersion={{a.rv}}"), post("secrets", "b", ``),
		merge("secrets/a", `{"metadata":{"labels":{"l":"2"}}}`),
		merge("secrets/b", `{"metadata":{"labels":{"l":"1"}}}`),
		merge("secrets/b", `{"metadata":{"annotations":{"x":"y"}}}`),
		merge("secrets/a", `{"metadata":{"labels":{"l":"1"}}}`), del("secrets/a", ``), events("w", 5)}},
	{"watch with a field selector", []step{
		post("pods", "p", pod("")), watching("w", "pods?fieldSelector=status.phase%3DFailed&resourceVersion={{p.rv}}"),
		merge("pods/p/status", `{"status":{"phase":"Failed"}}`), del("pods/p", ``), events("w", 3)}},
	{"watch a stream of the list", []step{
		post("secrets", "b", ``), post("secrets", "a", ``),
		watching("w", "secrets?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
		events("w", 3), merge("secrets/a", `{"metadata":{"labels":{"x":"y"}}}`), events("w", 1)}},
	{"watch a stream of an empty list",
		[]step{watching("w", "gadgets?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"+
			"&allowWatchBookmarks=true&resourceVersion=0"), events("w", 1)}},
	{"watch with bad options", []step{get("secrets?watch=true&sendInitialEvents=true"),
		get("secrets?watch=true&resourceVersionMatch=NotOlderThan"), get("secrets?watch=true&resourceVersion=x"),
		get("secrets?watch=true&labelSelector=a%3D%3D%3Db")}},
	{"watch that ends", []step{watching("w", "gadgets?timeoutSeconds=1"), ends("w")}},
	{"watch a deletion with a finalizer", []step{
		post("gadgets", "a", `"metadata":{"finalizers":["example.com/f"]},"spec":{"x":1}`),
		watching("w", "gadgets?resourceVersion={{a.rv}}"), del("gadgets/a", ``),
		merge("gadgets/a", `{"metadata":{"finalizers":null},"spec":{"x":2}}`), events("w", 2)}},

	{"empty lists and maps in metadata", []step{
		post("gadgets", "a", `"metadata":{"finalizers":[],"ownerReferences":[],"labels":{},"annotations":{}}`),
		get("gadgets/a"), merge("gadgets/a", `{"metadata":{"finalizers":[],"labels":{}}}`),
		jsonPatch("gadgets/a", `[{"op":"test","path":"/metadata/finalizers","value":null}]`),
		jsonPatch("gadgets/a", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/f"}]`),
		merge("gadgets/a", `{"metadata":{"finalizers":["example.com/f"]}}`),
		jsonPatch("gadgets/a", `[{"op":"remove","path":"/metadata/finalizers/0"}]`), get("gadgets/a"),
		put("gadgets/a", `"metadata":{"resourceVersion":"{{a.rv}}","finalizers":[],"labels":{}}`), get("gadgets/a"),
		post("gadgets", "b", `"metadata":{"finalizers":null,"labels":null}`), get("gadgets/b"),
		merge("gadgets/b", `{"metadata":{"labels":{"x":"y"},"annotations":{"x":"y"}}}`),
		merge("gadgets/b", `{"metadata":{"labels":{"x":null},"annotations":{"x":null}}}`), get("gadgets/b"),
		apply("gadgets/c?fieldManager=one", `"metadata":{"finalizers":[],"labels":{}},"spec":{"x":1}`),
		get("gadgets/c"),
		apply("gadgets/c?fieldManager=one", `"metadata":{"finalizers":[],"labels":{}},"spec":{"x":1}`),
		apply("gadgets/c?fieldManager=one&dryRun=All", `"metadata":{"finalizers":[],"labels":{}},"spec":{"x":3}`),
		apply("gadgets/d?fieldManager=one&dryRun=All", `"metadata":{"finalizers":[],"labels":{}},"spec":{"x":3}`),
		apply("gadgets/c?fieldManager=one", `"metadata":{"finalizers":[]},"spec":{"x":2}`), get("gadgets/c"),
		apply("gadgets/c?fieldManager=two", `"metadata":{"labels":{"x":"y"}}`),
		apply("gadgets/c?fieldManager=two", `"metadata":{"labels":{}}`), get("gadgets/c")}},
	{"protobuf and other formats", []step{
		post("cm", "a", ``), post("gadgets", "g", ``),
		raw("GET", "cm/a", "", "application/vnd.kubernetes.protobuf", ""),
		raw("GET", "cm", "", "application/vnd.kubernetes.protobuf,application/json", ""),
		raw("GET", "gadgets/g", "", "application/vnd.kubernetes.protobuf", ""),
		raw("GET", "gadgets/g", "", "application/vnd.kubernetes.protobuf,application/json", ""),
		raw("GET", "gadgets/g", "", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
			""), raw("GET", "cm/a", "", "*/*", ""), raw("GET", "cm/a", "", "application/cbor", ""),
		raw("GET", "cm/a", "", "application/cbor,application/json", ""),
		raw("POST", "cm", "application/cbor", "application/json", "x"),
		raw("POST", "cm", "text/plain", "application/json", "x"),
		raw("GET", "cm?watch=true&timeoutSeconds=1", "", "application/vnd.kubernetes.protobuf", "")}},
	{"methods that there are not", []step{raw("POST", "cm/a", "application/json", "application/json",
		bodyOf("cm", "a", ``)), raw("PUT", "cm", "application/json", "application/json", bodyOf("cm", "a", ``))}},

	{"events", []step{
		post("events", "e", `"involvedObject":{"kind":"ConfigMap","namespace":"$NS","name":"a"},"reason":"Because",`+
			`"type":"Normal"`), merge("events/e", `{"count":2}`), get("events?fieldSelector=involvedObject.name%3Da"),
		post("events", "f", `"involvedObject":{"kind":"ConfigMap","namespace":"elsewhere","name":"a"}`),
		put("events/new", `"involvedObject":{"kind":"ConfigMap","namespace":"$NS","name":"a"}`)}},
	{"leases", []step{
		post("leases", "l", `"spec":{"holderIdentity":"me","leaseDurationSeconds":15,`+
			`"acquireTime":"2020-01-01T00:00:00.000000Z"}`),
		put("leases/l", `"metadata":{"resourceVersion":"{{l.rv}}"},"spec":{"holderIdentity":"you",`+
			`"leaseDurationSeconds":15,"leaseTransitions":1}`),
		post("leases", "m", `"spec":{"leaseDurationSeconds":0}`)}},
	{"pods", []step{post("pods", "p", pod("")),
		strategic("pods/p", `{"spec":{"containers":[{"name":"c","image":"other:2"}]}}`),
		strategic("pods/p", `{"spec":{"nodeName":"n"}}`),
		strategic("pods/p", `{"spec":{"containers":[{"name":"c","command":["x"]}]}}`),
		post("pods", "s", `"spec":{"containers":[{"name":"c","image":"i"},{"name":"c","image":"i"}]}`),
		post("pods", "t", `"spec":{"containers":[{"name":"C.c","image":"i"}]}`),
		post("pods", "q", `"spec":{"containers":[]}`), post("pods", "r", `"spec":{"containers":[{"name":"c"}]}`),
		get("pods?fieldSelector=spec.nodeName%3D")}},
	{"bind a pod to a node", []step{post("pods", "p", pod("")),
		bind("p/binding?dryRun=All", `"name":"p"`, `{"name":"n"}`), get("pods/p"),
		bind("p/binding", `"name":"p"`, `{"kind":"Node","name":"n"}`), get("pods/p"),
		bind("p/binding", `"name":"p"`, `{"name":"m"}`), bind("p/binding", `"name":"q"`, `{"name":"m"}`),
		bind("q/binding", `"name":"q"`, `{"name":"m"}`), post("pods", "q", pod("")),
		bind("q/binding", `"name":"q","uid":"{{p.uid}}"`, `{"name":"m"}`),
		bind("q/binding", `"name":"q","namespace":"elsewhere"`, `{"name":"m"}`),
		bind("q/binding", `"name":"q","uid":"{{q.uid}}"`, `{"name":"m"}`), get("pods/q"), del("pods/p", ``),
		bind("p/binding", `"name":"p"`, `{"name":"m"}`), del("pods/p?gracePeriodSeconds=0", ``)}},
}

// bind gives a pod to a node.
func bind(path, metadata, target string) step {
	return request("POST", "pods/"+path, "application/json",
		`{"apiVersion":"v1","kind":"Binding","metadata":{`+metadata+`},"target":`+target+`}`)
}

// workload is the inside of a ReplicaSet of n pods.
func workload(n int) string { return `"spec":` + specOf(n) }

func specOf(n int) string {
	return `{"replicas":` + string(rune('0'+n)) +
		`,"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},` +
		`"spec":{"containers":[{"name":"c","image":"i:1","ports":[{"containerPort":80}]}]}}}`
}

// pausedWorkload is a Deployment that its controller leaves alone, as far as it does.
const pausedWorkload = `"spec":{"paused":true,"replicas":0,"selector":{"matchLabels":{"app":"a"}},` +
	`"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`

func pod(node string) string {
	bound := ""
	if node != "" {
		bound = `"nodeName":"` + node + `",`
	}
	// A scheduler that does not exist, so that nobody else acts on the pod.
	return `"spec":{` + bound + `"schedulerName":"none","containers":[{"name":"c","image":"i:1"}]}`
}

func referenceTo(owner, more string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","name":"` + owner + `","uid":"{{` + owner + `.uid}}"` + more + `}`
}

func owned(owner, more string) string {
	return `"metadata":{"ownerReferences":[` + referenceTo(owner, more) + `]}`
}

// ownerless has an owner that does not exist. Once the collector has deleted such an object it has also seen what was
// there before.
const ownerless = `"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nobody",` +
	`"uid":"11111111-1111-4111-8111-111111111111"}]}`

// review asks about rights.
func review(kind, spec string) step {
	return request("POST", "apis/authorization.k8s.io/v1/"+strings.ToLower(kind)+"s", "application/json",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"`+kind+`","spec":{`+spec+`}}`)
}
