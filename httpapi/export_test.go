package httpapi

// ProblemDefinition is one row of the table of problems, for the tests that compare the contract with it.
type ProblemDefinition = definition

// Problems is the table of problems.
var Problems = problems

// Contract is the embedded file.
var Contract = openAPI

// AdminProblems are those of the admin side only.
var AdminProblems = adminProblems

// AdminContract is the admin side's document, as it is served.
var AdminContract = newAdminDocument().body

// MaxWaits is how many streams and waits a buyer may have at once.
const MaxWaits = maxWaits

// LogPerWindow is how many answers of a kind are logged in a second.
const LogPerWindow = logPerWindow

// NewLimited is the counter of what was refused because of a limit.
var NewLimited = newLimited
