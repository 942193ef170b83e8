// Package console is what operators see and press in a browser: pages that the server renders, which work without
// JavaScript, and come alive with it. It is served beside the admin API, works with the same parts as that and asks for
// the same tokens and roles; it decides nothing itself.
//
// Read console.go (what is served, and who may see it), guard.go (what every request passes), session.go and sign_in.go
// (who somebody is), page.go (how a page is written), live.go (how it stays up to date) and command.go (how something
// is changed: a dry run first, then once). Each page is a file named after it, with its template in pages/. alarms.go
// says what is wrong, and timeline.go why an order is where it is.
package console
