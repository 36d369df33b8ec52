//! The screen of `mapwire top`.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::title;
use crate::see::jobs::{self, Job};
use crate::see::{Sample, table};

/// How often the figures are read: ranks publish no faster than ten times a second.
const EVERY: Duration = Duration::from_secs(1);
const SEARCH: Duration = Duration::from_secs(2);

struct Screen {
    only: Option<u32>,
    jobs: Vec<Job>,
    /// By broker and rank.
    before: HashMap<(u32, u32), Sample>,
    lines: Vec<Shown>,
    scroll: usize,
    searched: Instant,
}

enum Shown {
    Title(String),
    Rank(Box<[String; table::TITLES.len()]>),
}

pub(super) fn watch(only: Option<u32>, jobs: Vec<Job>) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut screen =
        Screen { only, jobs, before: HashMap::new(), lines: Vec::new(), scroll: 0, searched: Instant::now() };
    let outcome = screen.run(&mut terminal);
    ratatui::restore();
    outcome
}

impl Screen {
    fn run(&mut self, terminal: &mut ratatui::DefaultTerminal) -> io::Result<()> {
        let mut due = Instant::now();
        loop {
            let now = Instant::now();
            if now >= due {
                due = now + EVERY;
                self.read(now);
            }
            terminal.draw(|frame| self.draw(frame))?;
            if event::poll(due.saturating_duration_since(Instant::now()))? && self.is_over(&event::read()?) {
                return Ok(());
            }
        }
    }

    fn read(&mut self, now: Instant) {
        if now >= self.searched + SEARCH || self.jobs.is_empty() {
            self.searched = now;
            self.jobs = jobs::find();
            if let Some(pid) = self.only {
                self.jobs.retain(|job| job.has(pid));
            }
        }
        self.jobs.retain(Job::is_alive);
        let mut after = HashMap::new();
        self.lines.clear();
        for job in &self.jobs {
            let samples = job.samples();
            self.lines.push(Shown::Title(title(job, samples.len())));
            for sample in samples {
                let place = (job.broker, sample.rank);
                let before = self.before.get(&place).filter(|before| before.at_ns != 0);
                let rates = before.map(|before| {
                    let seconds = sample.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
                    table::cells(&sample, Some((before, seconds)))
                });
                let none = || table::cells(&sample, Some((&sample, 0.0)));
                self.lines.push(Shown::Rank(Box::new(rates.unwrap_or_else(none))));
                after.insert(place, sample);
            }
        }
        self.before = after;
    }

    /// Handles what the user did. True when that was to leave.
    fn is_over(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else {
            return false;
        };
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        self.scroll = match key.code {
            KeyCode::Char('c') if is_control => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Up => self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(20),
            KeyCode::PageDown => self.scroll + 20,
            KeyCode::Home => 0,
            KeyCode::End => self.lines.len(),
            _ => self.scroll,
        }
        .min(self.lines.len().saturating_sub(1));
        false
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [body, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
        if self.lines.is_empty() {
            frame.render_widget(Paragraph::new("no job runs on this host"), body);
        }
        // A job is headed by its title, which takes a line of its own.
        let mut y = body.y;
        let widths = table::TITLES.map(|title| Constraint::Length(title.len().max(10) as u16));
        let head = Row::new(table::TITLES.map(Cell::from)).bold();
        let mut shown = self.lines.iter().skip(self.scroll).peekable();
        while let Some(line) = shown.next() {
            let left = (body.y + body.height).saturating_sub(y);
            if left == 0 {
                break;
            }
            let area = |y, height| ratatui::layout::Rect { y, height, ..body };
            let mut rows = Vec::new();
            match line {
                Shown::Title(text) => {
                    frame.render_widget(Line::from(text.as_str()).bold(), area(y, 1));
                    y += 1;
                }
                Shown::Rank(cells) => rows.push(Row::new(cells.iter().cloned())),
            }
            while let Some(Shown::Rank(cells)) = shown.next_if(|next| matches!(next, Shown::Rank(_))) {
                rows.push(Row::new(cells.iter().cloned()));
            }
            let left = (body.y + body.height).saturating_sub(y);
            let height = left.min(rows.len() as u16 + 1);
            if !rows.is_empty() && height > 0 {
                frame.render_widget(Table::new(rows, widths).header(head.clone()), area(y, height));
                y += height;
            }
        }
        let text = "a second: bytes, packets, fetches, faults, losses    q leaves, arrows scroll";
        frame.render_widget(Line::from(text).dim(), foot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    fn screen(lines: Vec<Shown>) -> Screen {
        Screen { only: None, jobs: Vec::new(), before: HashMap::new(), lines, scroll: 0, searched: Instant::now() }
    }

    fn drawn(screen: &Screen, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(150, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn rank(number: u32) -> Shown {
        Shown::Rank(Box::new(table::cells(&Sample::absent(number, 0), None)))
    }

    #[test]
    fn a_screen_shows_each_job_with_its_ranks_and_fits_into_any_height() {
        let screen = screen(vec![
            Shown::Title("job 7: mapwire run".into()),
            rank(41),
            rank(42),
            Shown::Title("job 8: mpirun".into()),
            rank(43),
        ]);
        let text = drawn(&screen, 20);
        for wanted in ["job 7", "job 8", "41", "42", "43", "received", "q leaves"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        for height in 1..8 {
            drawn(&screen, height);
        }
    }

    #[test]
    fn keys_scroll_and_leave() {
        let mut screen = screen((0..50).map(rank).collect());
        let key = |code| Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        for (code, scroll) in
            [(KeyCode::Up, 0), (KeyCode::Down, 1), (KeyCode::PageDown, 21), (KeyCode::End, 49), (KeyCode::Home, 0)]
        {
            assert!(!screen.is_over(&key(code)));
            assert_eq!(screen.scroll, scroll);
        }
        assert!(screen.is_over(&key(KeyCode::Char('q'))));
        assert!(screen.is_over(&Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL))));
    }
}
